/* near.c - see near.h */
#include "base/near.h"
#include "base/alloc.h"
#include <string.h>

unsigned text_distance(const char *a, const char *b)
{
	enum { LONGEST = 40 };
	unsigned rows[3][LONGEST + 1];
	size_t a_len = strlen(a), b_len = strlen(b);

	if (a_len > LONGEST || b_len > LONGEST)
		return LONGEST;
	for (unsigned j = 0; j <= b_len; j++)
		rows[0][j] = j;
	for (unsigned i = 1; i <= a_len; i++) {
		unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3],
			 *above2 = rows[(i + 1) % 3];

		row[0] = i;
		for (unsigned j = 1; j <= b_len; j++) {
			row[j] = above[j - 1] + (a[i - 1] != b[j - 1]);
			row[j] = MIN(row[j], above[j] + 1);
			row[j] = MIN(row[j], row[j - 1] + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = MIN(row[j], above2[j - 2] + 1);
		}
	}
	return rows[a_len % 3][b_len];
}

bool text_is_near(const char *a, const char *b)
{
	size_t longer = MAX(strlen(a), strlen(b));
	unsigned allowed = longer <= 3 ? 1 : longer <= 6 ? 2 : 3;

	return text_distance(a, b) <= allowed;
}
