/* box.h - the `box` command inside a box: a client of box-init, which passes on to the daemon */
#pragma once

int box_main(int argc, char **argv); /* the exit code */
