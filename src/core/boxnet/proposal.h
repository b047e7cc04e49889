/* proposal.h - makes the smallest policy that allows what was seen in watch mode */
#pragma once
#include "base/err.h"
#include "base/json.h"

/* seen is what gate_recorded returns. Result: {"since","policy":{normal
 * form},"text":YAML,"destinations":[…]}; new reference. Names come from inside a box: invalid names
 * and addresses are left out. NULL with err. */
json_t *proposal_make(const json_t *seen, struct err *err);
