/* inside.h - the front door for programs inside a box: what `box` there can ask for
 *
 * It calls the verbs of core for the box that asks (core/ask.h), within what lineage.h allows. Each
 * request is an event, "inside.VERB". */
#pragma once

struct yard;

void inside_open(struct yard *yard); /* serves the asks of its boxes from now on */
/* Asks that are not over are left without an answer: box-init asks the next daemon again. */
void inside_close(struct yard *yard);
