/* Clients: each has one connection, sends its requests in its own way, and knows the response that each must get. */
#ifndef KS_SIM_CLIENTS_H
#define KS_SIM_CLIENTS_H
#include <stdbool.h>
#include <stdint.h>

void sim_clients_begin(void);
void sim_clients_turn(void);
int64_t sim_clients_next_ns(void);
bool sim_clients_over(void);      /* all have got what they wait for, or have left */
void sim_client_look(int client); /* the daemon has done something to its connection */
void sim_clients_end(void);       /* the daemon has ended: the last look at what came; frees them */
#endif
