/* Levels and formats of log lines, each with its word: for the log, and for the options that choose them. */
#ifndef KS_LOG_WORDS_H
#define KS_LOG_WORDS_H

#define KS_LEVEL_TABLE(X)                                                                                              \
    X(KS_LOG_ERROR, "error") X(KS_LOG_WARN, "warn") X(KS_LOG_INFO, "info") X(KS_LOG_DEBUG, "debug")
#define KS_LOG_FORMAT_TABLE(X) X(KS_LOG_TEXT, "text") X(KS_LOG_JSON, "json")
#define X(constant, word) constant,
typedef enum ks_level { KS_LEVEL_TABLE(X) KS_LEVELS } ks_level;
typedef enum ks_log_format { KS_LOG_FORMAT_TABLE(X) } ks_log_format;
#undef X

#endif
