/* Why models of the repository are not loaded.
 *
 * Owns      the notes, until ks_models_close.
 * Interface table.h: ks_models_note, ks_models_reason, ks_models_note_at
 * Threads   any; the table's lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/parts.h"

/* With the lock. */
static ks_model_note **find_note(ks_models *models, const char *name)
{
    ks_model_note **link = &models->notes;
    while (*link && strcmp((*link)->name, name) != 0) link = &(*link)->next;
    return link;
}

static bool is_operation(const char *name)
{
    const ks_model *model = ks_model_find(name, strlen(name));
    return model && !ks_model_is_loadable(model->index);
}

/* With the lock. Without memory there is none. */
static void write_note(ks_model_note **link, const char *name, const char *reason)
{
    if (!*link) *link = calloc(1, sizeof **link);
    if (!*link) return;
    snprintf((*link)->name, sizeof(*link)->name, "%s", name);
    snprintf((*link)->reason, sizeof(*link)->reason, "%s", reason);
}

void ks_models_note(ks_models *models, const char *name, const char *reason)
{
    if (is_operation(name)) return;
    pthread_mutex_lock(&models->lock);
    ks_model_note **link = find_note(models, name), *gone = NULL;
    if (reason) {
        write_note(link, name, reason);
    } else if (*link) {
        gone = *link;
        *link = gone->next;
    }
    pthread_mutex_unlock(&models->lock);
    free(gone);
}

bool ks_models_reason(ks_models *models, const char *name, char reason[KS_MODEL_NOTE_MAX])
{
    pthread_mutex_lock(&models->lock);
    const ks_model_note *note = *find_note(models, name);
    snprintf(reason, KS_MODEL_NOTE_MAX, "%s", note ? note->reason : "");
    pthread_mutex_unlock(&models->lock);
    return note != NULL;
}

bool ks_models_note_at(ks_models *models, int index, char name[KS_MODEL_NAME_MAX])
{
    pthread_mutex_lock(&models->lock);
    const ks_model_note *note = models->notes;
    while (note && index-- > 0) note = note->next;
    if (note) memcpy(name, note->name, KS_MODEL_NAME_MAX);
    pthread_mutex_unlock(&models->lock);
    return note != NULL;
}
