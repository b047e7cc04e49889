/* names.c - names for boxes nobody named */
#include "core/core_internal.h"
#include "base/text.h"

static const char *const moods[] = { "amber", "brave", "brisk", "calm", "clever", "coral", "crisp",
	"daring", "eager", "early", "fair", "fond", "gentle", "glad", "golden", "grand", "happy",
	"hardy", "ivory", "jolly", "keen", "kind", "lively", "lucid", "lunar", "mellow", "merry",
	"mild", "noble", "olive", "plain", "proud", "quick", "quiet", "rapid", "ready", "royal",
	"sharp", "silver", "sleek", "smart", "snowy", "solid", "spry", "steady", "still", "sunny",
	"swift", "tidy", "true", "vivid", "warm", "wise", "witty", "young", "zesty" };
static const char *const animals[] = { "badger", "beaver", "bison", "bittern", "bunting", "civet",
	"cod", "condor", "crane", "curlew", "deer", "dingo", "dove", "eagle", "egret", "falcon",
	"ferret", "finch", "fox", "gecko", "goose", "grebe", "hare", "hawk", "heron", "ibex",
	"ibis", "jay", "kestrel", "kite", "koala", "lark", "lemur", "linnet", "lion", "lynx",
	"marten", "mole", "newt", "ocelot", "osprey", "otter", "owl", "panda", "pika", "plover",
	"puffin", "quail", "raven", "robin", "seal", "shrew", "stoat", "swan", "tapir", "tern",
	"tiger", "trout", "vole", "wren" };

char *name_make_up(void)
{
	uint16_t dice[3];

	random_bytes(dice, sizeof dice);
	return xasprintf("%s-%s-%u", moods[dice[0] % ARRAY_LEN(moods)],
		animals[dice[1] % ARRAY_LEN(animals)], dice[2] % 1000);
}
