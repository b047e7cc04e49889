/* net.c - what boxes sent and received */
#include "api/api_internal.h"
#include "core/boxnet/network.h"

static void on_connections(void *arg, json_t *list, const struct err *err)
{
	struct later *later = arg;
	json_t *value = json_incref(later->value);
	struct http_request *request = later_end(later);

	/* A box that the gate does not serve has no connections. */
	json_object_set_new(value, "connections_list", err ? json_array() : json_incref(list));
	if (request)
		http_reply_json(request, 200, value);
	else
		json_decref(value);
}

void api_box_net(struct call *call)
{
	struct box *box = call_box(call);
	bool connections = false;
	struct err err = ERR_INIT;
	struct later *later;

	if (!box)
		return;
	if (input_query_bool(call, "connections", &connections, &err) < 0)
		return call_error(call, &err);
	if (!connections)
		return call_json(call, 200, box_net_json(box));
	later = later_new(call);
	later->value = box_net_json(box);
	box_connections(box, on_connections, later);
}

static bool add_totals(struct box *box, void *arg)
{
	static const char *const keys[] = { "bytes_out", "bytes_in", "connections",
		"connections_now", "refused", "questions" };
	_cleanup_json_ json_t *net = box_net_json(box);
	json_t *list = arg, *one = json_pack("{s:s,s:s,s:s}", "box", box_get_id(box), "name",
				    box_get_name(box), "state", box_state_name(box_get_state(box)));

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		json_t *value = json_object_get(net, keys[i]);

		json_object_set_new(one, keys[i], value ? json_incref(value) : json_integer(0));
	}
	json_array_append_new(list, one);
	return true;
}

void api_net(struct call *call)
{
	json_t *list = json_array();

	box_each(call->yard, add_totals, list);
	call_json(call, 200, json_pack("{s:o}", "boxes", list));
}
