/* routes.c - every call of the API, once: dispatch, scopes, allowed queries and the OpenAPI file
 * come from here */
#include "api/api_internal.h"
#include "base/text.h"
#include <stdio.h>

#define END       \
	{         \
		0 \
	}
#define TAR "application/x-tar"

static const struct query_key query_boxes[] = {
	{ "label", "string", "key=value or key; may be repeated", false },
	{ "state", "string", "only boxes in this state", false },
	{ "limit", "integer", "at most this many, 1 to 1000", false },
	{ "after", "string", "id of the last box of the page before", false },
	END,
};
static const struct query_key query_remove[] = {
	{ "force", "boolean", "remove it even if it runs", false },
	{ "keep_workspace", "boolean", "keep its /workspace under the id of the box", false },
	END,
};
static const struct query_key query_diff[] = {
	{ "other", "string", "a box or an image to compare with; the box's image when absent",
		false },
	{ "format", "string", "list (default) or tar", false },
	END,
};
static const struct query_key query_compare[] = {
	{ "box", "string", "id or name, 2 to 16 times; the others are compared with the first",
		true },
	{ "limit", "integer", "at most this many paths, 1 to 10000 (default 1000)", false },
	END,
};
static const struct query_key query_url[] = {
	{ "port", "integer", "the box's default port when absent", false },
	END,
};
static const struct query_key query_net[] = {
	{ "connections", "boolean", "include its open connections", false },
	END,
};
static const struct query_key query_images[] = {
	{ "all", "boolean", "include images without a name", false },
	{ "cache_key", "string", "only the image of this build step", false },
	END,
};
static const struct query_key query_import[] = {
	{ "name", "string", "name of the image; the one in the archive when absent", false },
	{ "fallback", "string", "name to use when neither this request nor the archive has one",
		false },
	{ "size", "integer", "size of the body in bytes; Content-Length when absent", false },
	END,
};
static const struct query_key query_export[] = {
	{ "format", "string", "oci (default), docker or rootfs", false },
	END,
};
static const struct query_key query_logs[] = {
	{ "offset", "string", "first byte to return, or end", false },
	{ "follow", "boolean", "keep the stream open and send new output", false },
	{ "tail", "integer", "only the last N lines", false },
	{ "since", "string",
		"only output since a time: 2026-01-02T03:04:05Z, or 10m for the last ten minutes",
		false },
	{ "raw", "boolean", "plain bytes instead of JSON lines", false },
	END,
};
static const struct query_key query_attach[] = {
	{ "offset", "string", "first byte to return, or end", false },
	{ "stdin", "boolean", "false: output only", false },
	END,
};
#define PATH_KEY                                               \
	{                                                      \
		"path", "string", "absolute, without ..", true \
	}
static const struct query_key query_path[] = { PATH_KEY, END };
static const struct query_key query_read[] = {
	PATH_KEY,
	{ "offset", "integer", "first byte to return", false },
	{ "length", "integer", "number of bytes; 0: to the end", false },
	END,
};
static const struct query_key query_write[] = {
	PATH_KEY,
	{ "mode", "string", "octal permissions", false },
	{ "parents", "boolean", "create missing parent folders", false },
	END,
};
static const struct query_key query_recursive[] = {
	PATH_KEY,
	{ "recursive", "boolean", "remove folders with their contents", false },
	END,
};
static const struct query_key query_stat[] = {
	PATH_KEY,
	{ "follow", "boolean", "true: follow a symbolic link", false },
	END,
};
static const struct query_key query_events[] = {
	{ "since", "integer", "offset of the first event to return", false },
	{ "limit", "integer", "at most this many, 1 to 1000", false },
	{ "box", "string", "id or name", false },
	{ "tail", "integer", "only the newest N events", false },
	{ "follow", "boolean", "stream, and keep sending new ones", false },
	END,
};

static const struct query_key query_audit_verify[] = {
	{ "log", "string", "the log of one tree of boxes", false },
	END,
};

static const struct query_key query_audit[] = {
	{ "since", "integer", "seq of the first line to return; the newest lines when absent",
		false },
	{ "limit", "integer", "at most this many, 0 to 1000; of the newest ones also with follow",
		false },
	{ "box", "string", "id or name", false },
	{ "verdict", "string", "allowed or refused", false },
	{ "log", "string", "the log of one tree of boxes", false },
	{ "follow", "boolean", "stream, and keep sending new ones", false },
	END,
};

#define B "/v1/boxes/{box}"
/* a principal that may run programs in boxes may look into them */
#define SCOPE_LOOK (SCOPE_FILES | SCOPE_EXEC)

static const struct route routes[] = {
	{ "POST", "/v1/boxes", SCOPE_CREATE, api_boxes_create,
		"create a box and wait until it runs", "BoxSpec", "Box", 201, ROUTE_BODY, NULL },
	{ "GET", "/v1/boxes", SCOPE_READ, api_boxes_list, "list boxes, oldest first", NULL,
		"BoxList", 200, 0, query_boxes },
	{ "GET", B, SCOPE_READ, api_box_show, "show a box", NULL, "Box", 200, 0, NULL },
	{ "PATCH", B, SCOPE_CREATE, api_box_change,
		"change name, limits, action at a limit and automatic snapshots", "BoxChange",
		"Box", 200, ROUTE_BODY, NULL },
	{ "DELETE", B, SCOPE_CREATE, api_box_remove, "remove a box", NULL, NULL, 204, 0,
		query_remove },
	{ "POST", B "/start", SCOPE_CREATE, api_box_start, "start a stopped box from its disk",
		"Empty", "Box", 200, ROUTE_BODY, NULL },
	{ "POST", B "/stop", SCOPE_CREATE, api_box_stop,
		"stop a box: TERM to all programs, then KILL", "BoxStop", "Box", 200, ROUTE_BODY,
		NULL },
	{ "POST", B "/suspend", SCOPE_CREATE, api_box_suspend,
		"suspend a box: its processes stop, in memory", "Empty", "Box", 200, ROUTE_BODY,
		NULL },
	{ "POST", B "/resume", SCOPE_CREATE, api_box_resume, "resume a suspended box", "Empty",
		"Box", 200, ROUTE_BODY, NULL },
	{ "POST", B "/hibernate", SCOPE_CREATE, api_box_hibernate,
		"hibernate a box: write its processes to disk and free its memory", "Empty", "Box",
		200, ROUTE_BODY, NULL },
	{ "POST", B "/wake", SCOPE_CREATE, api_box_wake, "wake a suspended or hibernated box",
		"Empty", "Box", 200, ROUTE_BODY, NULL },
	{ "POST", B "/snapshots", SCOPE_CREATE, api_box_snapshot,
		"take a snapshot of the disk and the processes", "SnapshotSpec", "Snapshot", 201,
		ROUTE_BODY, NULL },
	{ "DELETE", B "/snapshots/{snapshot}", SCOPE_CREATE, api_snapshot_remove,
		"delete a snapshot", NULL, NULL, 204, 0, NULL },
	{ "GET", B "/timeline", SCOPE_READ, api_box_timeline,
		"list the snapshots of a box and its present position", NULL, "Timeline", 200, 0,
		NULL },
	{ "POST", B "/rollback", SCOPE_CREATE, api_box_rollback, "roll a box back to a snapshot",
		"RollbackSpec", "Rollback", 200, ROUTE_BODY, NULL },
	{ "POST", B "/fork", SCOPE_CREATE, api_box_fork,
		"fork a box: copies that go on from the same moment", "ForkSpec", "Forks", 201,
		ROUTE_BODY, NULL },
	{ "POST", B "/promote", SCOPE_CREATE, api_box_promote,
		"put a fork in the place of the box it was forked from", "PromoteSpec", "Promotion",
		200, ROUTE_BODY, NULL },
	{ "POST", B "/save", SCOPE_CREATE, api_box_save, "save the disk of a box as an image",
		"BoxSave", "Image", 201, ROUTE_BODY, NULL },
	{ "GET", B "/diff", SCOPE_LOOK, api_box_diff, "list what changed on the disk of a box",
		NULL, "DiffLine", 200, ROUTE_STREAM, query_diff },
	{ "GET", B "/stats", SCOPE_READ, api_box_stats, "resource use of a box now", NULL,
		"BoxStats", 200, 0, NULL },
	{ "GET", B "/processes", SCOPE_READ, api_box_processes, "list the processes in a box", NULL,
		"ProcessList", 200, 0, NULL },
	{ "GET", B "/policy", SCOPE_READ, api_policy_show, "show the policy of a box", NULL,
		"BoxPolicy", 200, 0, NULL },
	{ "PUT", B "/policy", SCOPE_CREATE, api_policy_set,
		"replace the policy of a box; connections that it forbids are closed", "PolicySet",
		"BoxPolicy", 200, ROUTE_BODY, NULL },
	{ "POST", B "/policy/explain", SCOPE_READ, api_policy_explain,
		"tell whether a connection would be allowed, and by which rule", "Flow", "Verdict",
		200, ROUTE_BODY, NULL },
	{ "POST", B "/policy/record", SCOPE_CREATE, api_policy_record,
		"turn watch mode on or off: everything public is allowed and recorded",
		"PolicyRecord", "BoxPolicy", 200, ROUTE_BODY, NULL },
	{ "GET", B "/policy/proposal", SCOPE_READ, api_policy_proposal,
		"propose the smallest policy that allows what watch mode recorded", NULL,
		"Proposal", 200, 0, NULL },
	{ "GET", B "/ports", SCOPE_READ, api_ports_list, "list the ports that were set", NULL,
		"PortList", 200, 0, NULL },
	{ "PUT", B "/ports/{port}", SCOPE_CREATE, api_port_set,
		"set who may use a port, and the port of the host that forwards to it", "PortSpec",
		"PortList", 200, ROUTE_BODY, NULL },
	{ "DELETE", B "/ports/{port}", SCOPE_CREATE, api_port_remove,
		"make a port private again and stop forwarding to it", NULL, NULL, 204, 0, NULL },
	{ "GET", B "/url", SCOPE_READ, api_box_url, "show the URL of a port", NULL, "PortUrl", 200,
		0, query_url },
	{ "POST", B "/login", SCOPE_EXEC, api_box_login,
		"create a one-time link that logs a browser in to a private port", "PortLoginSpec",
		"PortLogin", 201, ROUTE_BODY, NULL },
	{ "GET", B "/net", SCOPE_READ, api_box_net, "traffic of a box", NULL, "BoxNet", 200, 0,
		query_net },
	{ "POST", B "/exec", SCOPE_EXEC, api_exec, "run a program and stream its output",
		"ExecSpec", "ExecLine", 200, ROUTE_BODY | ROUTE_STREAM, NULL },
	{ "GET", B "/exec", SCOPE_EXEC, api_exec_ws, "run a program interactively over WebSocket",
		NULL, NULL, 101, ROUTE_WEBSOCKET, NULL },
	{ "GET", B "/execs", SCOPE_READ, api_execs_list, "list the programs started in a box", NULL,
		"ExecList", 200, 0, NULL },
	{ "GET", B "/execs/{exec}", SCOPE_READ, api_exec_show, "show a program", NULL, "Exec", 200,
		0, NULL },
	{ "POST", B "/execs/{exec}/signal", SCOPE_EXEC, api_exec_signal,
		"send a signal to a program", "ExecSignal", NULL, 204, ROUTE_BODY, NULL },
	{ "GET", B "/execs/{exec}/logs", SCOPE_LOOK, api_exec_logs,
		"read the output of a program from an offset", NULL, "ExecLine", 200, ROUTE_STREAM,
		query_logs },
	{ "GET", B "/execs/{exec}/attach", SCOPE_EXEC, api_exec_attach,
		"attach to a program over WebSocket", NULL, NULL, 101, ROUTE_WEBSOCKET,
		query_attach },
	{ "GET", B "/files", SCOPE_LOOK, api_file_read, "read a file", NULL, "bytes", 200,
		ROUTE_STREAM, query_read },
	{ "PUT", B "/files", SCOPE_EXEC, api_file_write, "write a file atomically", "bytes", "Stat",
		200, ROUTE_UPLOAD, query_write },
	{ "DELETE", B "/files", SCOPE_EXEC, api_file_remove, "remove a file or folder", NULL, NULL,
		204, 0, query_recursive },
	{ "GET", B "/files/stat", SCOPE_LOOK, api_file_stat,
		"show type, size and permissions of a path", NULL, "Stat", 200, 0, query_stat },
	{ "GET", B "/files/list", SCOPE_LOOK, api_file_list, "list a folder", NULL, "StatList", 200,
		ROUTE_STREAM, query_path },
	{ "POST", B "/files/mkdir", SCOPE_EXEC, api_file_mkdir, "create a folder", "FileMkdir",
		NULL, 204, ROUTE_BODY, NULL },
	{ "POST", B "/files/rename", SCOPE_EXEC, api_file_rename, "rename or move a file",
		"FileRename", NULL, 204, ROUTE_BODY, NULL },
	{ "POST", B "/files/chmod", SCOPE_EXEC, api_file_chmod, "change permissions", "FileChmod",
		NULL, 204, ROUTE_BODY, NULL },
	{ "GET", B "/archive", SCOPE_LOOK, api_archive_read, "download a path as a tar", NULL, TAR,
		200, ROUTE_STREAM, query_path },
	{ "PUT", B "/archive", SCOPE_EXEC, api_archive_write, "unpack a tar into a folder", TAR,
		"ArchiveResult", 200, ROUTE_UPLOAD, query_path },
	{ "GET", "/v1/compare", SCOPE_LOOK, api_compare, "compare the files of boxes", NULL,
		"Comparison", 200, 0, query_compare },
	{ "GET", "/v1/stats", SCOPE_READ, api_stats, "resource use of all running boxes", NULL,
		"StatsList", 200, 0, NULL },
	{ "GET", "/v1/net", SCOPE_READ, api_net, "traffic of all boxes", NULL, "NetList", 200, 0,
		NULL },
	{ "POST", "/v1/policy/check", SCOPE_READ, api_policy_check,
		"check a policy; errors have line numbers", "PolicyText", "PolicyReport", 200,
		ROUTE_BODY, NULL },
	{ "GET", "/v1/policy/presets", SCOPE_READ, api_policy_presets,
		"list the ready-made policies", NULL, "PresetList", 200, 0, NULL },
	{ "GET", "/v1/events", SCOPE_READ, api_events, "list or follow events from an offset", NULL,
		"EventList", 200, 0, query_events },
	{ "GET", "/v1/audit", SCOPE_READ, api_audit,
		"read the audit log: what boxes tried, allowed or refused", NULL, "AuditList", 200,
		0, query_audit },
	{ "GET", "/v1/audit/verify", SCOPE_READ, api_audit_verify,
		"verify that the audit log was not changed", NULL, "AuditCheck", 200, 0,
		query_audit_verify },
	{ "GET", "/v1/images", SCOPE_READ, api_images_list, "list images", NULL, "ImageList", 200,
		0, query_images },
	{ "POST", "/v1/images", SCOPE_CREATE, api_image_build, "build an image and stream progress",
		"ImageSpec", "ImageLine", 200, ROUTE_BODY | ROUTE_STREAM, NULL },
	{ "POST", "/v1/images/pull", SCOPE_CREATE, api_image_pull,
		"pull an image from a registry and stream progress", "ImagePull", "ImageLine", 200,
		ROUTE_BODY | ROUTE_STREAM, NULL },
	{ "POST", "/v1/images/import", SCOPE_CREATE, api_image_import,
		"import an image from an archive", "bytes", "Image", 201, ROUTE_UPLOAD,
		query_import },
	{ "POST", "/v1/images/gc", SCOPE_CREATE, api_images_gc,
		"remove unused images without a name, layers and downloads", "ImageGc",
		"ImageGcResult", 200, ROUTE_BODY, NULL },
	/* An {image} also matches slashes: these two before the ones it would shadow. */
	{ "GET", "/v1/images/{image}/export", SCOPE_LOOK, api_image_export,
		"export an image as an archive", NULL, TAR, 200, ROUTE_STREAM, query_export },
	{ "POST", "/v1/images/{image}/tag", SCOPE_CREATE, api_image_tag,
		"give an image another name", "ImageTag", "Image", 200, ROUTE_BODY, NULL },
	{ "GET", "/v1/images/{image}", SCOPE_READ, api_image_show, "show an image", NULL, "Image",
		200, 0, NULL },
	{ "DELETE", "/v1/images/{image}", SCOPE_CREATE, api_image_remove,
		"remove an unused image, or one of its names", NULL, NULL, 204, 0, NULL },
	{ "GET", "/v1/pool", SCOPE_READ, api_pool_show,
		"show the pool: where disks are stored, and how full it is", NULL, "Pool", 200, 0,
		NULL },
	{ "POST", "/v1/pool/grow", SCOPE_ADMIN, api_pool_grow, "grow the pool", "PoolGrow", "Pool",
		200, ROUTE_BODY, NULL },
	{ "POST", "/v1/pool/scrub", SCOPE_ADMIN, api_pool_scrub,
		"verify all checksums and stream progress", "Empty", "ScrubLine", 200,
		ROUTE_BODY | ROUTE_STREAM, NULL },
	{ "GET", "/v1/volumes", SCOPE_READ, api_volumes_list, "list volumes", NULL, "VolumeList",
		200, 0, NULL },
	{ "POST", "/v1/volumes", SCOPE_CREATE, api_volume_create, "create a volume", "VolumeSpec",
		"Volume", 201, ROUTE_BODY, NULL },
	{ "GET", "/v1/volumes/{volume}", SCOPE_READ, api_volume_show, "show a volume", NULL,
		"Volume", 200, 0, NULL },
	{ "PATCH", "/v1/volumes/{volume}", SCOPE_CREATE, api_volume_change,
		"change the limit of a volume", "VolumeChange", "Volume", 200, ROUTE_BODY, NULL },
	{ "DELETE", "/v1/volumes/{volume}", SCOPE_CREATE, api_volume_remove,
		"remove a volume that no box uses", NULL, NULL, 204, 0, NULL },
	{ "GET", "/v1/workspaces", SCOPE_READ, api_workspaces_list,
		"list the kept workspaces of removed boxes", NULL, "WorkspaceList", 200, 0, NULL },
	{ "GET", "/v1/workspaces/{workspace}", SCOPE_LOOK, api_workspace_list,
		"list the files of a kept workspace", NULL, "WorkspaceLine", 200, ROUTE_STREAM,
		NULL },
	{ "GET", "/v1/workspaces/{workspace}/archive", SCOPE_LOOK, api_workspace_archive,
		"download a kept workspace as a tar", NULL, TAR, 200, ROUTE_STREAM, NULL },
	{ "DELETE", "/v1/workspaces/{workspace}", SCOPE_CREATE, api_workspace_remove,
		"remove a kept workspace", NULL, NULL, 204, 0, NULL },
	{ "GET", "/v1/tokens", SCOPE_ADMIN, api_tokens_list, "list tokens, without their secrets",
		NULL, "TokenList", 200, 0, NULL },
	{ "POST", "/v1/tokens", SCOPE_ADMIN, api_token_create,
		"create a token; its secret is shown once", "TokenSpec", "NewToken", 201,
		ROUTE_BODY, NULL },
	{ "DELETE", "/v1/tokens/{token}", SCOPE_ADMIN, api_token_revoke,
		"revoke a token by id or name", NULL, NULL, 204, 0, NULL },
	{ "GET", "/v1/keys", SCOPE_READ, api_keys_list, "list the keys of SSH logins", NULL,
		"KeyList", 200, 0, NULL },
	{ "POST", "/v1/keys", SCOPE_CREATE, api_key_add,
		"add a key for SSH logins; 200 when the same is there already", "KeySpec", "Key",
		201, ROUTE_BODY, NULL },
	{ "GET", "/v1/keys/{key}", SCOPE_READ, api_key_show,
		"show a key, by id, name or fingerprint", NULL, "Key", 200, 0, NULL },
	{ "DELETE", "/v1/keys/{key}", SCOPE_CREATE, api_key_remove,
		"remove a key, by id, name or fingerprint", NULL, NULL, 204, 0, NULL },
	{ "GET", "/v1/info", SCOPE_READ, api_info,
		"version, home, listening addresses, counts, drivers", NULL, "Info", 200, 0, NULL },
	{ "GET", "/v1/doctor", SCOPE_READ, api_doctor, "check what this machine can and cannot do",
		NULL, "Doctor", 200, 0, NULL },
	{ "GET", "/v1/openapi.json", 0, api_openapi_json, "this OpenAPI description", NULL,
		"OpenApi", 200, 0, NULL },
	{ "GET", "/v1/health", 0, api_health, "check that the daemon answers", NULL, "Health", 200,
		0, NULL },
	{ "POST", "/v1/shutdown", SCOPE_ADMIN, api_shutdown,
		"stop the daemon; boxes keep running, are hibernated, or everything is removed",
		"Shutdown", "ShutdownDone", 202, ROUTE_BODY, NULL },
};

const struct route *route_table(size_t *ret_count)
{
	*ret_count = ARRAY_LEN(routes);
	return routes;
}

/* How much of path the {…} at the start of pattern matches; 0: no match. One component; but names
 * of images and fingerprints of keys contain slashes, so an {image} and a {key} extend as far as
 * the rest of the pattern allows. (The
 * path is decoded as a whole before: a slash is a slash, however it was written.) */
static size_t param_len(const char *pattern, const char *path)
{
	const char *rest = strchr(pattern, '}') + 1;
	size_t len = strlen(path), tail = strlen(rest);

	if (!text_has_prefix(pattern, "{image}") && !text_has_prefix(pattern, "{key}"))
		return strcspn(path, "/");
	if (len <= tail || strcmp(path + len - tail, rest))
		return 0;
	len -= tail;
	return path[0] == '/' || path[len - 1] == '/' ? 0 : len;
}

/* Compares component by component; a {…} matches anything but an empty one. */
static bool path_matches(
	const char *pattern, const char *path, char params[API_PARAMS][API_PARAM_MAX])
{
	size_t param = 0;

	while (*pattern && *path) {
		size_t len;

		if (*pattern != '{') {
			if (*pattern++ != *path++)
				return false;
			continue;
		}
		len = param_len(pattern, path);
		if (!len || len >= API_PARAM_MAX || param == API_PARAMS)
			return false;
		memcpy(params[param], path, len);
		params[param++][len] = '\0';
		path += len;
		pattern = strchr(pattern, '}') + 1;
	}
	return !*pattern && !*path;
}

static bool method_matches(const struct route *route, const char *method)
{
	if (!strcmp(route->method, method))
		return true;
	return !strcmp(method, "HEAD") && !strcmp(route->method, "GET") &&
	       !(route->flags & (ROUTE_STREAM | ROUTE_WEBSOCKET));
}

const struct route *route_match(const char *method, const char *path,
	char params[API_PARAMS][API_PARAM_MAX], char *ret_allow)
{
	size_t allowed = 0;

	ret_allow[0] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
		if (!path_matches(routes[i].pattern, path, params))
			continue;
		if (method_matches(&routes[i], method))
			return &routes[i];
		allowed += (size_t)snprintf(ret_allow + allowed, 64 - allowed, "%s%s",
			allowed ? ", " : "", routes[i].method);
	}
	return NULL;
}
