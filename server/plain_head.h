/* The head of a request of the plainest form, without a library: "POST target HTTP/1.1" and fields of one line each, a colon
 * and a space behind their names. Whatever else HTTP allows is somebody else's to read. Pure; any thread. */
#ifndef KS_PLAIN_HEAD_H
#define KS_PLAIN_HEAD_H
#include "gate.h"

/* bytes: up to and with the first empty line; cut into the head's strings, which they must outlive. false: not of this form,
 * and the head is of no use. */
bool ks_plain_head(char *bytes, size_t length, ks_head *head);
#endif
