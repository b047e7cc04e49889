/* meters.h - the traffic of a box: in total, by destination, by minute and by hour
 *
 * The gate reports figures since it was given the box; here they are added up over restarts. */
#pragma once
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct meters;

struct meters *meters_new(void);
void meters_free(struct meters *meters); /* accepts NULL */
/* Takes a report of the gate, see gate.h; told is borrowed. */
void meters_told(struct meters *meters, json_t *told);
json_t *meters_now(const struct meters *meters);		 /* the last report; borrowed */
json_int_t meters_figure(const json_t *object, const char *key); /* 0: missing */
/* The gate has released the box: its last report is final. */
void meters_settle(struct meters *meters);
/* Since the last meters_save. */
bool meters_have_changed(const struct meters *meters);
char *meters_save(struct meters *meters);		    /* yours to free */
void meters_load(struct meters *meters, const char *saved); /* an invalid text counts as none */
/* Only the totals: {"bytes_out","bytes_in","connections","connections_now","refused","questions"};
 * new reference. */
json_t *meters_totals_json(const struct meters *meters);
/* Also "destinations", most bytes first, and "minutes" (60) and "hours" (168), only those with
 * traffic, oldest first. */
json_t *meters_json(const struct meters *meters);
