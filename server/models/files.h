/* The files of a model: its document, and the safetensors files that initializers name.
 *
 * Life     ks_model_files_add or ks_model_files_open (a folder) -> ks_model_files_definition -> ks_model_files_content for each initializer of
 *          a file -> ks_model_files_fini.
 * Limits   KS_MODEL_FILES_MAX files; a file's head has at most 4 MiB. What is no ordinary file of the folder itself is not opened.
 * Owner    the set owns what it has opened and read; bytes that are added are the caller's.  Threads  one at a time. */
#ifndef KS_MODEL_FILES_H
#define KS_MODEL_FILES_H
#include "codec/format.h"
#include "models/definition.h"
#include "resident/store.h"

enum { KS_MODEL_FILES_MAX = 64, KS_MODEL_FILE_NAME_MAX = 128 };

typedef struct ks_model_file {
    char name[KS_MODEL_FILE_NAME_MAX + 1];
    const unsigned char *bytes; /* NULL: of fd */
    int fd;                     /* -1: none */
    uint64_t length;
    bool known; /* its head: */
    uint64_t head_bytes;
    ks_file_tensors tensors;
} ks_model_file;

typedef struct ks_model_files {
    int count;
    ks_model_file file[KS_MODEL_FILES_MAX];
    char *text;           /* of the definition */
    ks_model_file *whole; /* the file that the definition is of, and then each initializer; NULL: there is none */
    /* where contents come to lie: */
    const ks_backend *backend;
    ks_device *device;
    ks_store *store;
    const ks_tenant *tenant;
} ks_model_files;

/* A name that a file of a model may have: model.json, or [A-Za-z0-9_.-] that ends in .safetensors; "1/" in front is left out. NULL, with
 * the error KS_NAME, KS_DEFINITION: it is no such name. */
const char *ks_model_file_name(const char *name, ks_error *error);
/* name: as above. bytes live as long as the set. KS_COUNT, KS_NAME: given twice. */
ks_status ks_model_files_add(ks_model_files *files, const char *name, const unsigned char *bytes, size_t length,
                             ks_error *error);
/* All of a folder that have such names, or of its folder "1". KS_MODEL: it is not there, or has no document. */
ks_status ks_model_files_open(ks_model_files *files, const char *folder, ks_error *error);
/* model.json, or what model.safetensors has in its head. Lives as long as the set. KS_DEFINITION: there is none. */
ks_status ks_model_files_definition(ks_model_files *files, const char **text, size_t *length, ks_error *error);
/* What the file's head says of the initializer's tensor, without its bytes. KS_NAME: there is no such file, or key. */
ks_status ks_model_files_tensor(ks_model_files *files, const ks_initializer *from, ks_tensor *out, ks_error *error);
/* A content of the initializer's tensor, whose bytes and etag are complete. KS_NAME: there is no such file, or key. */
ks_status ks_model_files_content(ks_model_files *files, const ks_initializer *from, ks_content **out, ks_error *error);
/* What a folder's files are, but for their bytes: names, sizes, times, inodes. Never 0. folder: of the open one above. */
uint64_t ks_model_files_print(int above, const char *folder);
void ks_model_files_fini(ks_model_files *files);
#endif
