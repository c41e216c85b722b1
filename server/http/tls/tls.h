/* The certificate, key and client CA of the TLS listeners: one set for the process, which SIGHUP may replace. Handshakes take the
 * set that is there when they begin; connections keep what theirs has agreed on.
 * The only files that know GnuTLS, beside libmicrohttpd, which moves the bytes.
 * Threads  any; the lock of the current set is taken by handshakes and by a reload, never by a request. */
#ifndef KS_TLS_H
#define KS_TLS_H
#include <stddef.h>

#include "base/config/config.h"

typedef struct ks_tls ks_tls;

/* Reads and checks what --tls-cert, --tls-key, --tls-client-ca and --tls-priorities name. 0 or the exit code: a file that is not
 * there (66), a key that others may read (77), else wrong contents (78); the sentence names the file. */
int ks_tls_read(const ks_config *config, ks_tls **out, ks_error *error);
void ks_tls_free(ks_tls **tls);
int64_t ks_tls_expires_s(const ks_tls *tls); /* when the certificate does, by the clock */
/* New handshakes get this set, which is taken; NULL: none. */
void ks_tls_publish_take(ks_tls *tls);

/* --- for libmicrohttpd's transport --- */

/* gnutls_certificate_retrieve_function3 */
typedef void ks_tls_retrieve_fn(void);
ks_tls_retrieve_fn *ks_tls_retrieve(void);
/* "TLS1.3"; static. session: GnuTLS's. */
const char *ks_tls_version(void *session);
/* true: all of it has been handed to the kernel. */
bool ks_tls_send(void *session, const char *bytes, size_t n);
#endif
