/* workspaces.c - kept workspaces of removed boxes */
#include "api/api_internal.h"

void api_workspaces_list(struct call *call)
{
	call_json(call, 200, json_pack("{s:o}", "workspaces", workspaces_json(call->yard)));
}

void api_workspace_list(struct call *call)
{
	struct pump *pump = pump_new(call, "application/x-ndjson");
	struct err err = ERR_INIT;

	pump_started(pump,
		workspace_list_start(
			call->yard, call->params[0], &pump_ops, pump, &pump->stream, &err),
		&err);
}

void api_workspace_archive(struct call *call)
{
	struct pump *pump = pump_new(call, "application/x-tar");
	struct err err = ERR_INIT;

	pump_started(pump,
		workspace_get_start(
			call->yard, call->params[0], &pump_ops, pump, &pump->stream, &err),
		&err);
}

void api_workspace_remove(struct call *call)
{
	struct err err = ERR_INIT;

	if (workspace_remove(call->yard, call->params[0], &err) < 0)
		return call_error(call, &err);
	call_none(call);
}
