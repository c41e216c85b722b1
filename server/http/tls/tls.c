/* Owns       the current set, behind a lock; a handshake copies from it what GnuTLS keeps.
 * Interface  tls.h.
 * Limits     files of at most 1 MiB; a client's chain of at most 16 certificates. */
#include "http/tls/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 20, CHAIN_MAX = 16 };

struct ks_tls {
    gnutls_x509_crt_t *chain;
    unsigned chain_length;
    gnutls_x509_privkey_t key;
    gnutls_x509_trust_list_t clients; /* NULL: clients need no certificate */
};

static struct {
    pthread_rwlock_t lock;
    ks_tls *current;
} published = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* --- files -------------------------------------------------------------------------------------------------------- */

static int fail_open(const char *option, const char *file, int fault, ks_error *error)
{
    ks_fail(error, KS_CONFIG, "%s: %.200s: %s", option, file, strerror(fault));
    return fault == EACCES || fault == EPERM ? KS_EXIT_PERMISSION : KS_EXIT_NO_FILE;
}

static int check_file(const char *option, const char *file, bool secret, const struct stat *about, ks_error *error)
{
    if (!S_ISREG(about->st_mode) || about->st_size > FILE_MAX) {
        ks_fail(error, KS_CONFIG, "%s: %.200s is not a file of at most %d bytes", option, file, FILE_MAX);
        return KS_EXIT_CONFIG;
    }
    if (!secret || (about->st_mode & 077) == 0) return KS_EXIT_OK;
    ks_fail(error, KS_CONFIG, "%s: %.200s has mode %04o, must be 0600: others may read it", option, file,
            (unsigned)(about->st_mode & 07777));
    return KS_EXIT_PERMISSION;
}

/* The file's bytes, to be freed; its size may change meanwhile. */
static int read_file(const char *option, const char *file, bool secret, gnutls_datum_t *out, ks_error *error)
{
    struct stat about;
    *out = (gnutls_datum_t){NULL, 0};
    const int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return fail_open(option, file, errno, error);
    int code = fstat(fd, &about) == 0 ? check_file(option, file, secret, &about, error)
                                      : fail_open(option, file, errno, error);
    if (code == KS_EXIT_OK && (out->data = malloc(FILE_MAX)) == NULL) {
        ks_fail(error, KS_MEMORY, "%s: out of memory", option);
        code = KS_EXIT_SYSTEM;
    }
    ssize_t got = 0;
    while (code == KS_EXIT_OK && out->size < FILE_MAX &&
           (got = TEMP_FAILURE_RETRY(read(fd, out->data + out->size, FILE_MAX - out->size))) > 0)
        out->size += (unsigned)got;
    if (code == KS_EXIT_OK && got < 0) code = fail_open(option, file, errno, error);
    close(fd);
    return code;
}

static void drop_file(gnutls_datum_t *file)
{
    if (file->data) explicit_bzero(file->data, file->size);
    free(file->data);
    file->data = NULL;
}

static int fail_file(const char *option, const char *file, const char *what, int fault, ks_error *error)
{
    ks_fail(error, KS_CONFIG, "%s: %.160s %s%s%s", option, file, what, fault ? ": " : "",
            fault ? gnutls_strerror(fault) : "");
    return KS_EXIT_CONFIG;
}

/* --- the parts of a set ------------------------------------------------------------------------------------------- */

static int read_chain(ks_tls *tls, const char *file, ks_error *error)
{
    gnutls_datum_t bytes;
    const int code = read_file("tls-cert", file, false, &bytes, error);
    int fault = 0;
    if (code == KS_EXIT_OK)
        fault = gnutls_x509_crt_list_import2(&tls->chain, &tls->chain_length, &bytes, GNUTLS_X509_FMT_PEM, 0);
    drop_file(&bytes);
    if (code != KS_EXIT_OK) return code;
    return fault < 0 ? fail_file("tls-cert", file, "is no certificate in PEM form", fault, error) : KS_EXIT_OK;
}

static bool is_key_of(gnutls_x509_privkey_t key, gnutls_x509_crt_t certificate)
{
    unsigned char of_key[64], of_certificate[64];
    size_t n = sizeof of_key, m = sizeof of_certificate;
    return gnutls_x509_privkey_get_key_id(key, 0, of_key, &n) == 0 &&
           gnutls_x509_crt_get_key_id(certificate, 0, of_certificate, &m) == 0 && n == m &&
           memcmp(of_key, of_certificate, n) == 0;
}

static int read_key(ks_tls *tls, const char *file, ks_error *error)
{
    gnutls_datum_t bytes;
    const int code = read_file("tls-key", file, true, &bytes, error);
    int fault = code == KS_EXIT_OK ? gnutls_x509_privkey_init(&tls->key) : 0;
    if (code == KS_EXIT_OK && fault == 0)
        fault = gnutls_x509_privkey_import2(tls->key, &bytes, GNUTLS_X509_FMT_PEM, NULL, 0);
    drop_file(&bytes);
    if (code != KS_EXIT_OK) return code;
    if (fault < 0) return fail_file("tls-key", file, "is no private key in PEM form", fault, error);
    if (is_key_of(tls->key, tls->chain[0])) return KS_EXIT_OK;
    return fail_file("tls-key", file, "is not the key of the certificate in --tls-cert", 0, error);
}

static int read_clients(ks_tls *tls, const char *file, ks_error *error)
{
    gnutls_datum_t bytes;
    if (!*file) return KS_EXIT_OK;
    const int code = read_file("tls-client-ca", file, false, &bytes, error);
    int added = code == KS_EXIT_OK ? gnutls_x509_trust_list_init(&tls->clients, 0) : 0;
    if (code == KS_EXIT_OK && added == 0)
        added = gnutls_x509_trust_list_add_trust_mem(tls->clients, &bytes, NULL, GNUTLS_X509_FMT_PEM, 0, 0);
    drop_file(&bytes);
    if (code != KS_EXIT_OK) return code;
    return added < 1 ? fail_file("tls-client-ca", file, "has no certificate in PEM form", added, error) : KS_EXIT_OK;
}

static int check_priorities(const char *text, ks_error *error)
{
    gnutls_priority_t priorities;
    const char *at = text;
    if (gnutls_priority_init(&priorities, text, &at) == 0) {
        gnutls_priority_deinit(priorities);
        return KS_EXIT_OK;
    }
    ks_fail(error, KS_CONFIG, "tls-priorities: GnuTLS does not know '%.100s'", at);
    return KS_EXIT_CONFIG;
}

int ks_tls_read(const ks_config *config, ks_tls **out, ks_error *error)
{
    *out = NULL;
    if (!*config->tls_cert || !*config->tls_key) {
        ks_fail(error, KS_CONFIG, "tls-listen: needs --tls-cert and --tls-key");
        return KS_EXIT_CONFIG;
    }
    ks_tls *tls = calloc(1, sizeof *tls);
    if (!tls) {
        ks_fail(error, KS_MEMORY, "tls-cert: out of memory");
        return KS_EXIT_SYSTEM;
    }
    int code = check_priorities(config->tls_priorities, error);
    if (code == KS_EXIT_OK) code = read_chain(tls, config->tls_cert, error);
    if (code == KS_EXIT_OK) code = read_key(tls, config->tls_key, error);
    if (code == KS_EXIT_OK) code = read_clients(tls, config->tls_client_ca, error);
    if (code != KS_EXIT_OK) ks_tls_free(&tls);
    *out = tls;
    return code;
}

void ks_tls_free(ks_tls **pointer)
{
    ks_tls *tls = *pointer;
    *pointer = NULL;
    if (!tls) return;
    for (unsigned i = 0; i < tls->chain_length; i++) gnutls_x509_crt_deinit(tls->chain[i]);
    gnutls_free(tls->chain);
    if (tls->key) gnutls_x509_privkey_deinit(tls->key);
    if (tls->clients) gnutls_x509_trust_list_deinit(tls->clients, 1);
    free(tls);
}

int64_t ks_tls_expires_s(const ks_tls *tls)
{
    return gnutls_x509_crt_get_expiration_time(tls->chain[0]);
}

void ks_tls_publish_take(ks_tls *tls)
{
    pthread_rwlock_wrlock(&published.lock);
    ks_tls *old = published.current;
    published.current = tls;
    pthread_rwlock_unlock(&published.lock);
    ks_tls_free(&old);
}

/* --- handshakes --------------------------------------------------------------------------------------------------- */

static bool client_is_known(const ks_tls *tls, const gnutls_datum_t *raw, unsigned n)
{
    gnutls_x509_crt_t chain[CHAIN_MAX];
    unsigned imported = 0, status = ~0u;
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                     .data = (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT};
    bool good = raw != NULL && n > 0 && n <= CHAIN_MAX;
    while (good && imported < n) {
        good = gnutls_x509_crt_init(&chain[imported]) == 0;
        if (!good) break;
        good = gnutls_x509_crt_import(chain[imported], &raw[imported], GNUTLS_X509_FMT_DER) == 0;
        imported++;
    }
    good = good && tls && tls->clients &&
           gnutls_x509_trust_list_verify_crt2(tls->clients, chain, n, &purpose, 1, 0, &status, NULL) == 0 &&
           status == 0;
    for (unsigned i = 0; i < imported; i++) gnutls_x509_crt_deinit(chain[i]);
    return good;
}

/* gnutls_certificate_verify_function: ends the handshake of a client without a certificate of ours. */
static int verify_client(gnutls_session_t session)
{
    unsigned n = 0;
    const gnutls_datum_t *raw = gnutls_certificate_get_peers(session, &n);
    pthread_rwlock_rdlock(&published.lock);
    const bool good = client_is_known(published.current, raw, n);
    pthread_rwlock_unlock(&published.lock);
    return good ? 0 : GNUTLS_E_CERTIFICATE_ERROR;
}

/* Copies, which GnuTLS frees. */
static gnutls_pcert_st *copy_chain(const ks_tls *tls)
{
    gnutls_pcert_st *copies = gnutls_calloc(tls->chain_length, sizeof *copies);
    unsigned done = 0;
    while (copies && done < tls->chain_length && gnutls_pcert_import_x509(&copies[done], tls->chain[done], 0) == 0)
        done++;
    if (!copies || done == tls->chain_length) return copies;
    while (done > 0) gnutls_pcert_deinit(&copies[--done]);
    gnutls_free(copies);
    return NULL;
}

static gnutls_privkey_t copy_key(const ks_tls *tls)
{
    gnutls_privkey_t copy;
    if (gnutls_privkey_init(&copy) != 0) return NULL;
    if (gnutls_privkey_import_x509(copy, tls->key, GNUTLS_PRIVKEY_IMPORT_COPY) == 0) return copy;
    gnutls_privkey_deinit(copy);
    return NULL;
}

/* gnutls_certificate_retrieve_function3 */
static int retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *info, gnutls_pcert_st **chain,
                    unsigned *chain_length, gnutls_ocsp_data_st **ocsp, unsigned *ocsp_length, gnutls_privkey_t *key,
                    unsigned *flags)
{
    (void)info;
    *ocsp = NULL;
    *ocsp_length = 0;
    *chain = NULL;
    *key = NULL;
    pthread_rwlock_rdlock(&published.lock);
    const ks_tls *tls = published.current;
    if (tls) *chain = copy_chain(tls);
    if (*chain) *key = copy_key(tls);
    if (*chain) *chain_length = tls->chain_length;
    const bool asks = tls && tls->clients;
    pthread_rwlock_unlock(&published.lock);
    if (*key == NULL) {
        for (unsigned i = 0; *chain && i < *chain_length; i++) gnutls_pcert_deinit(&(*chain)[i]);
        gnutls_free(*chain);
        *chain = NULL;
        return -1;
    }
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    if (asks) {
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
        gnutls_session_set_verify_function(session, verify_client);
    }
    return 0;
}

ks_tls_retrieve_fn *ks_tls_retrieve(void)
{
    return (ks_tls_retrieve_fn *)retrieve;
}

const char *ks_tls_version(void *session)
{
    return gnutls_protocol_get_name(gnutls_protocol_get_version(session));
}

bool ks_tls_send(void *session, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t sent = gnutls_record_send(session, bytes, n);
        if (sent == GNUTLS_E_INTERRUPTED) continue;
        if (sent <= 0) return false;
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}
