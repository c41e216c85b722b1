/* How many open connections each client address has: a table of fixed size, behind a lock that is taken where a connection is
 * accepted and where it is closed, never by a request. An IPv6 client is its /64, which one host has whole; a UNIX socket's
 * client has no address.
 * Threads  any. */
#ifndef KS_ADDRESSES_H
#define KS_ADDRESSES_H
#include <stdint.h>

struct sockaddr_storage;

typedef struct ks_addresses ks_addresses;
typedef struct ks_address ks_address;

ks_addresses *ks_addresses_open(int capacity); /* connections; NULL: no memory */
void ks_addresses_close(ks_addresses **addresses);
/* One more connection from there. NULL: no address, or more connections than there is room for. */
ks_address *ks_addresses_take(ks_addresses *addresses, const struct sockaddr_storage *from);
/* The connection is closed. *address may be NULL. */
void ks_address_give(ks_address **address);
int ks_address_connections(const ks_address *address); /* 0 where it is NULL */
#endif
