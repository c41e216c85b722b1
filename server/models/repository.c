/* Looks at the folders of the repository, and asks the loader for what is there.
 *
 * Owns      what it has seen of each model, and with poll a thread.
 * Interface repository.h
 * Threads   main's at start; then its own.
 * Limits    one load at a time, which is waited for. */
#include "models/repository.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/notify.h"
#include "models/files.h"

static const ks_tenant operators = {.name = "", .is_operator = true};

/* A model's folder. */
typedef struct entry {
    char name[KS_MODEL_NAME_MAX];
    const char *folder;    /* of the repository, that it lies in */
    uint64_t seen, loaded; /* what it was at the last look; when it was last loaded, or could not be; 0: never */
    int looks;             /* without it */
    bool there;
} entry;

struct ks_repository {
    ks_repository_options options;
    int count, wake_fd;
    entry *entries;
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop; /* under lock */
};

/* --- loads ---------------------------------------------------------------------------------------------------------------- */

static void wait_for(const ks_repository *repository, const ks_model_load *load)
{
    enum { LOOK_MS = 100 };
    struct pollfd woken = {.fd = repository->wake_fd, .events = POLLIN};
    while (!ks_model_load_result(load)) {
        uint64_t count;
        poll(&woken, 1, LOOK_MS);
        const ssize_t got = read(repository->wake_fd, &count, sizeof count);
        (void)got; /* another load may have been the one */
    }
}

/* Waits for room where requests load, too. */
static ks_status start_load(ks_repository *repository, const entry *model, ks_model_load **load, ks_error *error)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", model->folder, model->name);
    const ks_load_source source = {
        .tenant = &operators, .name = model->name, .folder = path, .wake_fd = repository->wake_fd};
    ks_status status;
    while ((status = ks_models_load(repository->options.models, &source, load, error)) == KS_BUDGET)
        nanosleep(&pause, NULL);
    return status;
}

static ks_status load_model(ks_repository *repository, entry *model, ks_error *error)
{
    ks_model_load *load = NULL;
    model->loaded = model->seen;
    ks_status status = start_load(repository, model, &load, error);
    if (status == KS_OK) {
        wait_for(repository, load);
        const ks_load_result *result = ks_model_load_result(load);
        status = result->fault.status;
        if (status != KS_OK) *error = result->fault;
        ks_model_load_leave(repository->options.models, &load);
    }
    if (status == KS_OK) return KS_OK;
    KS_LOG(KS_LOG_ERROR, "model not loaded", KS_TEXT("model", model->name), KS_TEXT("folder", model->folder),
           KS_TEXT("reason", error->text));
    return status;
}

/* --- folders ---------------------------------------------------------------------------------------------------------------- */

static entry *find_entry(ks_repository *repository, const char *name)
{
    for (int i = 0; i < repository->count; i++)
        if (strcmp(repository->entries[i].name, name) == 0) return &repository->entries[i];
    return NULL;
}

/* A model of two folders is that of the first one. */
static void see_model(ks_repository *repository, const char *folder, int fd, const char *name)
{
    entry *model = find_entry(repository, name);
    if (model && model->there) return;
    if (!model && repository->count == KS_REPOSITORY_MODELS_MAX) return;
    if (!model) {
        model = &repository->entries[repository->count++];
        *model = (entry){.folder = folder};
        memcpy(model->name, name, strlen(name) + 1); /* is_model has measured it */
    }
    model->folder = folder;
    model->there = true;
    model->looks = 0;
    model->seen = ks_model_files_print(fd, name);
}

static bool is_model(int fd, const char *name)
{
    struct stat about;
    ks_error ignored;
    return ks_model_name_check(name, strlen(name), &ignored) == KS_OK &&
           fstatat(fd, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(about.st_mode);
}

static ks_status look_into(ks_repository *repository, const char *folder, ks_error *error)
{
    struct dirent **found = NULL;
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int count = fd < 0 ? -1 : scandirat(fd, ".", &found, NULL, alphasort);
    if (count < 0) ks_fail(error, KS_CONFIG, "model-repository: %.200s: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (is_model(fd, found[i]->d_name)) see_model(repository, folder, fd, found[i]->d_name);
        free(found[i]);
    }
    free(found);
    if (fd >= 0) close(fd);
    return count < 0 ? KS_CONFIG : KS_OK;
}

static ks_status look(ks_repository *repository, ks_error *error)
{
    const ks_list *folders = repository->options.folders;
    ks_status status = KS_OK;
    for (int i = 0; i < repository->count; i++) repository->entries[i].there = false;
    for (int i = 0; i < folders->count && status == KS_OK; i++) status = look_into(repository, folders->item[i], error);
    return status;
}

/* --- the start ------------------------------------------------------------------------------------------------------------- */

static bool is_wanted(const ks_repository *repository, const char *name)
{
    const ks_list *wanted = repository->options.wanted;
    for (int i = 0; wanted && i < wanted->count; i++)
        if (strcmp(wanted->item[i], "*") == 0 || strcmp(wanted->item[i], name) == 0) return true;
    return !wanted;
}

static bool is_missing(ks_repository *repository, const char *wanted)
{
    return strcmp(wanted, "*") != 0 && !find_entry(repository, wanted);
}

/* Names that are wanted and are not there. */
static ks_status check_wanted(ks_repository *repository, ks_error *error)
{
    const ks_list *wanted = repository->options.wanted;
    for (int i = 0; wanted && i < wanted->count; i++) {
        if (!is_missing(repository, wanted->item[i])) continue;
        KS_LOG(KS_LOG_ERROR, "model not loaded", KS_TEXT("model", wanted->item[i]),
               KS_TEXT("reason", "it is in no folder of --model-repository"));
        if (repository->options.strict)
            return ks_fail(error, KS_CONFIG, "load-model: %.100s is in no folder of --model-repository",
                           wanted->item[i]);
    }
    return KS_OK;
}

static ks_status load_first(ks_repository *repository, ks_error *error)
{
    ks_status status = look(repository, error);
    if (status == KS_OK) status = check_wanted(repository, error);
    for (int i = 0; i < repository->count && status == KS_OK; i++) {
        entry *model = &repository->entries[i];
        ks_error cause = {0};
        char text[KS_MODEL_NAME_MAX + 96];
        snprintf(text, sizeof text, "STATUS=Loading model %s\nEXTEND_TIMEOUT_USEC=60000000", model->name);
        ks_notify(text);
        if (!is_wanted(repository, model->name)) {
            ks_models_note(repository->options.models, model->name, "unloaded");
            continue;
        }
        if (load_model(repository, model, &cause) != KS_OK && repository->options.strict)
            status = ks_fail(error, KS_CONFIG, "model '%s': %s", model->name, cause.text);
    }
    return status;
}

/* --- polls ------------------------------------------------------------------------------------------------------------------ */

static void drop_gone(ks_repository *repository)
{
    ks_error ignored;
    for (int i = repository->count - 1; i >= 0; i--) {
        entry *model = &repository->entries[i];
        if (model->there || ++model->looks < 2) continue;
        ks_models_note(repository->options.models, model->name, NULL);
        ks_models_unload(repository->options.models, model->name, NULL, &ignored);
        KS_LOG(KS_LOG_INFO, "model has left the repository", KS_TEXT("model", model->name));
        *model = repository->entries[--repository->count];
    }
}

static void look_again(ks_repository *repository)
{
    ks_error error = {0};
    uint64_t before[KS_REPOSITORY_MODELS_MAX];
    const int known = repository->count;
    for (int i = 0; i < known; i++) before[i] = repository->entries[i].seen;
    if (look(repository, &error) != KS_OK) {
        KS_LOG(KS_LOG_WARN, "model repository", KS_TEXT("reason", error.text));
        return; /* what cannot be read has not gone */
    }
    for (int i = 0; i < known; i++) {
        entry *model = &repository->entries[i];
        if (model->there && model->seen == before[i] && model->seen != model->loaded)
            load_model(repository, model, &error);
    }
    drop_gone(repository);
}

/* false: asked to stop. */
static bool wait_a_while(ks_repository *repository)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += repository->options.poll_ns / 1000000000;
    pthread_mutex_lock(&repository->lock);
    while (!repository->stop && pthread_cond_timedwait(&repository->changed, &repository->lock, &until) == 0) {
    }
    const bool go_on = !repository->stop;
    pthread_mutex_unlock(&repository->lock);
    return go_on;
}

static void *work(void *context)
{
    ks_repository *repository = context;
    while (wait_a_while(repository)) look_again(repository);
    return NULL;
}

/* --- open and close --------------------------------------------------------------------------------------------------------- */

static ks_status start_thread(ks_repository *repository, ks_error *error)
{
    const int failure = pthread_create(&repository->thread, NULL, work, repository);
    if (failure)
        return ks_fail(error, KS_SYSTEM, "cannot start the thread that looks at the model repository: %s",
                       strerror(failure));
    pthread_setname_np(repository->thread, "ks-repository");
    repository->runs = true;
    return KS_OK;
}

static void open_lock(ks_repository *repository)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&repository->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&repository->lock, NULL);
}

ks_status ks_repository_open(const ks_repository_options *options, ks_repository **out, ks_error *error)
{
    ks_repository *repository = calloc(1, sizeof *repository);
    if (!repository) return ks_fail(error, KS_MEMORY, "no memory for the model repository");
    open_lock(repository);
    repository->options = *options;
    repository->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    repository->entries = calloc(KS_REPOSITORY_MODELS_MAX, sizeof *repository->entries);
    ks_status status = repository->entries && repository->wake_fd >= 0
                           ? load_first(repository, error)
                           : ks_fail(error, KS_MEMORY, "no memory for the model repository");
    if (status == KS_OK && options->poll_ns > 0) status = start_thread(repository, error);
    if (status != KS_OK) ks_repository_close(&repository);
    *out = repository;
    return status;
}

void ks_repository_close(ks_repository **closed)
{
    ks_repository *repository = *closed;
    *closed = NULL;
    if (!repository) return;
    pthread_mutex_lock(&repository->lock);
    repository->stop = true;
    pthread_cond_signal(&repository->changed);
    pthread_mutex_unlock(&repository->lock);
    if (repository->runs) pthread_join(repository->thread, NULL);
    if (repository->wake_fd >= 0) close(repository->wake_fd);
    pthread_cond_destroy(&repository->changed);
    pthread_mutex_destroy(&repository->lock);
    free(repository->entries);
    free(repository);
}

/* --- a look without loads ----------------------------------------------------------------------------------------------------- */

/* Shapes of initializers as their files' heads, or the document, have them. *known: all of them are. */
static ks_status bind_all(ks_model_files *files, ks_definition *definition, bool *known, ks_error *error)
{
    ks_status status = KS_OK;
    *known = true;
    for (int i = 0; i < definition->initializers && status == KS_OK; i++) {
        const ks_initializer *from = &definition->initializer[i];
        ks_tensor tensor = from->tensor;
        if (from->file) status = ks_model_files_tensor(files, from, &tensor, error);
        if (status == KS_OK && !from->resident) ks_definition_bind(definition, i, &tensor);
        *known = *known && !from->resident;
    }
    return status;
}

static ks_status check_files(ks_model_files *files, const entry *model, ks_error *error)
{
    const char *text = NULL;
    size_t length = 0;
    bool known = false;
    ks_definition *definition = NULL;
    ks_status status = ks_model_files_definition(files, &text, &length, error);
    if (status == KS_OK) status = ks_definition_read(model->name, text, length, &definition, error);
    if (status != KS_OK) return status;
    status = bind_all(files, definition, &known, error);
    if (status == KS_OK && known) status = ks_definition_infer(definition, error);
    ks_definition_free(&definition);
    return status;
}

static ks_status check_model(const entry *model, ks_error *error)
{
    char path[PATH_MAX];
    ks_model_files files = {0};
    if (ks_model_is_known(model->name, strlen(model->name)))
        return ks_fail(error, KS_RESERVED, "'%s' is the name of an operation, and no model's to load", model->name);
    snprintf(path, sizeof path, "%s/%s", model->folder, model->name);
    ks_status status = ks_model_files_open(&files, path, error);
    if (status == KS_OK) status = check_files(&files, model, error);
    ks_model_files_fini(&files);
    return status;
}

static void check_all(ks_repository *repository, ks_repository_fault_fn *tell, void *context)
{
    const ks_list *wanted = repository->options.wanted;
    ks_error error = {0};
    for (int i = 0; i < repository->options.folders->count; i++)
        if (look_into(repository, repository->options.folders->item[i], &error) != KS_OK) tell(context, NULL, &error);
    for (int i = 0; wanted && i < wanted->count; i++) {
        if (!is_missing(repository, wanted->item[i])) continue;
        ks_fail(&error, KS_CONFIG, "load-model: %.100s is in no folder of --model-repository", wanted->item[i]);
        tell(context, NULL, &error);
    }
    for (int i = 0; i < repository->count; i++) {
        const entry *model = &repository->entries[i];
        if (is_wanted(repository, model->name) && check_model(model, &error) != KS_OK)
            tell(context, model->name, &error);
    }
}

void ks_repository_check(const ks_repository_options *options, ks_repository_fault_fn *tell, void *context)
{
    ks_repository repository = {.options = *options,
                                .entries = calloc(KS_REPOSITORY_MODELS_MAX, sizeof *repository.entries)};
    ks_error error;
    if (repository.entries) {
        check_all(&repository, tell, context);
    } else {
        ks_fail(&error, KS_MEMORY, "no memory for the model repository");
        tell(context, NULL, &error);
    }
    free(repository.entries);
}
