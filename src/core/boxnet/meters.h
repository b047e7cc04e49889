/* meters.h - how much a box has moved over its network: ever, by destination, by minute and by hour
 *
 * The gate tells figures since it was given the box; here they are added up over restarts. */
#pragma once
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct meters;

struct meters *meters_new(void);
void meters_free(struct meters *meters); /* accepts NULL */
/* What the gate tells, see gate.h; told is borrowed. */
void meters_told(struct meters *meters, json_t *told);
json_t *meters_now(const struct meters *meters);		 /* what it told last; borrowed */
json_int_t meters_figure(const json_t *object, const char *key); /* 0: not there */
/* The gate has forgotten the box: what it told last is final. */
void meters_settle(struct meters *meters);
/* Since it was last saved. */
bool meters_have_changed(const struct meters *meters);
char *meters_save(struct meters *meters); /* yours to free */
void meters_load(
	struct meters *meters, const char *saved); /* what is no saved text is taken for none */
/* Totals alone: {"bytes_out","bytes_in","connections","connections_now","refused","questions"}; new
 * reference. */
json_t *meters_totals_json(const struct meters *meters);
/* And "destinations", most bytes first, "minutes" (60) and "hours" (168), those with anything in
 * them, oldest first. */
json_t *meters_json(const struct meters *meters);
