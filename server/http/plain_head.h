/* The head of a request, read strictly, without a library: a request line of three words, fields of one line each, every line
 * ended by CR LF, no control bytes but tabs in values. What is read in it no proxy in front of the daemon can have read
 * otherwise. Pure; any thread. */
#ifndef KS_PLAIN_HEAD_H
#define KS_PLAIN_HEAD_H
#include "base/head.h"

/* Of bytes that have come, as they lie: how many of them are a head, up to and with its first empty line; 0: not all of it has
 * come yet. *status: KS_OK, or what no head holds, however it goes on: what ks_plain_head will say of it. */
size_t ks_plain_head_length(const char *bytes, size_t n, ks_status *status, ks_error *error);
/* Of bytes that are not a head, or not a good one: the length of the method that they begin with, once their request line is complete
 * and has its three words; else 0. */
size_t ks_plain_method(const char *bytes, size_t n);

/* Cuts a head of that length into the strings of *head, which they must outlive. KS_REQUEST_LINE, KS_HTTP_VERSION, KS_HEADER: then
 * *head has what was read before that. */
ks_status ks_plain_head(char *bytes, size_t length, ks_head *head, ks_error *error);

/* A target in absolute form, http://AUTHORITY/PATH (RFC 9112 3.2.2): where its authority begins, and its length; path: what
 * lies behind it, which may be empty or begin with '?'. false: another form. */
bool ks_plain_absolute(const char *target, const char **authority, size_t *length, const char **path);
#endif
