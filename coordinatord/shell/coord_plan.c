/* SPDX-License-Identifier: Apache-2.0 */
/* coord_plan: builds the graph for its variables, plans them onto the servers, makes the message.
 */
#include "coordinatord/shell/coord_plan.h"

#include <stdlib.h>

#include "coordinatord/plan/plan.h"
#include "models/zoo/model.h"

enum err_code coord_plan_check(const struct job_spec *spec, const struct data_facts *facts,
                               struct err *err)
{
    AUTO(graph) graph = NULL;
    return model_build(&spec->model, facts->channels, facts->height, facts->width, &graph, err);
}

static void fill_facts(const struct plan *plan, struct coord_plan_facts *ret_facts)
{
    ret_facts->parameters = plan->parameters;
    ret_facts->target_count = plan->target_count;
    ret_facts->target_bytes = base_alloc((plan->target_count + 1) * sizeof(uint64_t));
    for (size_t i = 0; i < plan->target_count; i++)
        ret_facts->target_bytes[i] = plan->targets[i].bytes;
}

enum err_code coord_plan_make(const struct job_spec *spec, const struct data_facts *data,
                              const struct core_server_ref *servers, size_t server_count,
                              Steadfast__V1__Plan **ret_plan, uint32_t *ret_shard_count,
                              struct coord_plan_facts *ret_facts, struct err *err)
{
    AUTO(graph) graph = NULL;
    AUTO(plan) plan = NULL;
    enum err_code code =
        model_build(&spec->model, data->channels, data->height, data->width, &graph, err);
    if (code != ERR_OK)
        return code;
    struct plan_server *targets AUTO_MEM = base_alloc((server_count + 1) * sizeof(*targets));
    for (size_t i = 0; i < server_count; i++)
        targets[i] = (struct plan_server){
            .name = servers[i].name,
            .address = servers[i].address,
            .shard_count = servers[i].shard_count,
            .budget_bytes = servers[i].memory_bytes ? servers[i].memory_bytes : UINT64_MAX,
        };
    code = plan_build_graph(graph, spec, targets, (uint32_t)server_count, &plan, err);
    if (code == ERR_OK)
        code = plan_check_budgets(plan, targets, err);
    if (code == ERR_OK)
        code = plan_to_proto(plan, targets, ret_plan, err);
    if (code != ERR_OK)
        return code;
    uint32_t used = 0;
    for (size_t i = 0; i < plan->target_count; i++)
        used += plan->targets[i].slice_count > 0;
    *ret_shard_count = used;
    if (ret_facts)
        fill_facts(plan, ret_facts);
    return ERR_OK;
}
