/* proposal.h - from what was seen in watch mode to the smallest policy that allows it */
#pragma once
#include "base/err.h"
#include "base/json.h"

/* seen is what gate_recorded tells. {"since","policy":{normal
 * form},"text":YAML,"destinations":[…]}; new reference. Names come from inside a box: what is no
 * proper name or address is left out. NULL with err. */
json_t *proposal_make(const json_t *seen, struct err *err);
