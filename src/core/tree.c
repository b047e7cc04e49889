/* tree.c - see tree.h */
#include "core/tree.h"
#include "core/core_internal.h"

const char *box_get_tree(const struct box *box)
{
	return box->row.tree && *box->row.tree ? box->row.tree : box->row.id;
}

bool box_is_akin(const struct box *box, const struct box *other)
{
	return !strcmp(box_get_tree(box), box_get_tree(other));
}
