/* Runs a fuzz target over the files of the folders that are named, and over each of their beginnings, with any
 * compiler: every input that was ever kept stays a test. Fails where a folder holds no file. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

enum { BEGINNINGS_MAX = 512 };

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    static uint8_t content[1 << 20];
    const size_t size = fread(content, 1, sizeof content, file);
    fclose(file);
    for (size_t cut = 0; cut <= size; cut += cut < BEGINNINGS_MAX ? 1 : size - cut + (cut == size)) {
        /* A copy of its own, so that a sanitizer sees reads beyond the end. */
        uint8_t *const copy = malloc(cut + (cut == 0));
        if (!copy) return 0;
        for (size_t i = 0; i < cut; i++) copy[i] = content[i];
        LLVMFuzzerTestOneInput(copy, cut);
        free(copy);
    }
    return 1;
}

static int replay_folder(const char *folder)
{
    DIR *open_folder = opendir(folder);
    int files = 0;
    if (!open_folder) return 0;
    for (const struct dirent *entry; (entry = readdir(open_folder));) {
        char path[4096];
        if (entry->d_name[0] == '.') continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path) continue;
        files += replay_file(path);
    }
    closedir(open_folder);
    return files;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const int files = replay_folder(argv[i]);
        printf("%s: %d files\n", argv[i], files);
        if (files == 0) return 1;
    }
    return argc > 1 ? 0 : 1;
}
