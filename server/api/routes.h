/* The routes of both listeners, in one table: methods, path by raw segments, handler. Pure; any thread. */
#ifndef KS_ROUTES_H
#define KS_ROUTES_H
#include "observe/metrics.h"
#include "base/model.h"
#include "base/tokens.h"

typedef enum ks_route_id {
    KS_ROUTE_NONE,
    KS_ROUTE_INFER,
    KS_ROUTE_INDEX,
    KS_ROUTE_LIVE,
    KS_ROUTE_READY,
    KS_ROUTE_SERVER,
    KS_ROUTE_MODEL,
    KS_ROUTE_MODEL_READY,
    KS_ROUTE_MODEL_CONFIG,
    KS_ROUTE_MODEL_STATS,
    KS_ROUTE_PLAN,
    KS_ROUTE_DEFINITION,
    KS_ROUTE_ALL_STATS,
    KS_ROUTE_METRICS,
    KS_ROUTE_REPOSITORY,
    KS_ROUTE_LOAD,
    KS_ROUTE_UNLOAD,
    KS_ROUTE_LOGGING,
    KS_ROUTE_TRACE,       /* Triton's settings */
    KS_ROUTE_TIMELINE,    /* the trace */
    KS_ROUTE_STATUS_PAGE, /* for people; */
    KS_ROUTE_STATUS,      /* the same for programs */
    KS_ROUTE_PLANS,       /* what has run */
    KS_ROUTE_REGIONS,
    KS_ROUTE_REGISTER,
    KS_ROUTE_UNREGISTER,
    KS_ROUTE_OPENAPI,
    KS_ROUTE_TENSORS, /* all of them */
    KS_ROUTE_TENSOR,
    KS_ROUTE_OPTIONS, /* of the server as a whole: OPTIONS * */
    KS_ROUTES
} ks_route_id;

typedef struct ks_route {
    ks_route_id id;
    ks_handler handler;    /* label for metrics */
    bool open;             /* health and metrics: no Host check */
    bool authorized;       /* health: no token needed */
    unsigned right;        /* that the token must have; 0: being one is enough */
    const ks_model *model; /* of routes with a model */
    const char *query;     /* raw, behind '?', or "" */
    bool cuda;             /* of the three about shared memory: which kind */
    bool raw;              /* of an inference: bytes in, bytes out, and no JSON */
    const char *name;      /* of routes with a name that is no model's: its segment, raw; else NULL */
    size_t name_length;
    const char *allow; /* the path is known, and not for this method; or OPTIONS *: methods for Allow; else NULL */
} ks_route;

ks_method ks_method_of(const char *method);
/* The route's name, percent-decoded and terminated: 1 to KS_ROUTE_NAME_MAX printable ASCII bytes. KS_NAME. */
enum { KS_ROUTE_NAME_MAX = 128 };
ks_status ks_route_name(const ks_route *route, char out[KS_ROUTE_NAME_MAX + 1], ks_error *error);
/* The table's rows, for documents about it. false: past the last one. */
typedef struct ks_route_row {
    ks_route_id id;
    const char *path;  /* segments: a word, "*" a model, "#" a version, "@" another name */
    bool reads, works; /* GET and HEAD; POST */
    bool puts, deletes;
    bool data;      /* on the data listeners; else on the second one alone */
    bool raw;       /* as in ks_route */
    unsigned right; /* of POST, PUT and DELETE */
} ks_route_row;
bool ks_route_at(int index, ks_route_row *out);
/* Whether a POST to it has a JSON object that is read; that of any other but infer is dropped. */
bool ks_route_has_json_body(const ks_route *route);
/* Whether its document is about one device: of several workers ?device=N says whose. */
bool ks_route_is_of_device(ks_route_id id);
/* The index of a device; -1: it is none. */
int ks_device_read(const char *text, size_t length);
/* A query's first member, device=N: *device, -1 where it is none. Returns the query behind it. */
const char *ks_query_device(const char *query, int *device);
/* Always fills *route. KS_PATH, KS_METHOD (route->allow), KS_MODEL. admin: the second listener, which has health,
 * metrics, status, the trace and the index only. target: terminated. tenant: whose models come before those that all see; "": none's. */
ks_status ks_route_find(const char *method, const char *target, bool admin, const char *tenant, ks_route *route,
                        ks_error *error);
#endif
