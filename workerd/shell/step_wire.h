/* SPDX-License-Identifier: Apache-2.0 */
/* step_wire: keys, tickets and reports of steps into messages of proto/fleet, and back.
 *
 * Owns    nothing: a message borrows the texts of the report that it was made of.
 * Thread  any.
 */
#ifndef WORKERD_SHELL_STEP_WIRE_H
#define WORKERD_SHELL_STEP_WIRE_H

#include "proto/fleet.pb-c.h"
#include "workerd/step/step_ticket.h"

void step_wire_put_key(const struct step_key *key, Steadfast__V1__StepRef *ret_wire);
void step_wire_put_report(const struct step_report *report, Steadfast__V1__StepReport *ret_wire);
struct step_key step_wire_key(const Steadfast__V1__StepRef *wire);
struct step_ticket step_wire_ticket(const Steadfast__V1__StepTicket *wire, uint64_t session);

#endif
