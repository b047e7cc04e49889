/* schemas.c - the shapes of bodies and answers, for the OpenAPI file
 *
 * A type is a word of JSON schema or the name of another shape; in brackets it is a list of them, in braces an
 * object whose values are of it, with '?' it may be null. A '!' before the name: the key is required. */
#include "api/api_internal.h"

struct field {
	const char *schema;
	const char *name;
	const char *type;
	const char *about;
};

static const struct field fields[] = {
	{ "Error", "!error", "ErrorBody", "what went wrong" },
	{ "ErrorBody", "!code", "string", "one word, see the table of codes" },
	{ "ErrorBody", "!message", "string", "one line for people" },
	{ "ErrorBody", "!hint", "string", "what to do next; may be empty" },
	{ "Empty", NULL, NULL, NULL },
	{ "BoxSpec", "name", "string", "a DNS label; made up when absent" },
	{ "BoxSpec", "image", "string", "name or id; debian" },
	{ "BoxSpec", "driver", "string", "ns" },
	{ "BoxSpec", "profile", "string", "standard or nested" },
	{ "BoxSpec", "cpu", "figure", "CPUs: 1.5 or \"1.5\"; 0: no limit" },
	{ "BoxSpec", "memory", "figure", "bytes or \"512M\"; 0: no limit" },
	{ "BoxSpec", "disk", "figure", "bytes or \"10G\"; 0: no limit" },
	{ "BoxSpec", "pids", "integer", "processes and threads; 0: no limit" },
	{ "BoxSpec", "env", "{string}", "given to every program" },
	{ "BoxSpec", "labels", "{string}", "for finding boxes" },
	{ "BoxSpec", "command", "[string]",
		"runs at each start as exec main, after the entrypoint; the image's when absent" },
	{ "BoxSpec", "entrypoint", "[string]", "instead of the image's; empty: none" },
	{ "BoxSpec", "no_main", "boolean", "the image's own command does not run" },
	{ "BoxSpec", "on_limit", "string", "notify (default), pause or stop" },
	{ "BoxSpec", "volumes", "[BoxVolume]", "made when they are not there" },
	{ "BoxSpec", "mounts", "[BoxMount]", "folders of the host the configuration allows" },
	{ "BoxSpec", "remove_on_exit", "boolean", "gone when stopped or when the command ends" },
	{ "BoxVolume", "!volume", "string", "its name" },
	{ "BoxVolume", "!path", "string", "where the box sees it" },
	{ "BoxVolume", "read_only", "boolean", "only one running box may write" },
	{ "BoxMount", "!source", "string", "a folder of the host" },
	{ "BoxMount", "!path", "string", "where the box sees it" },
	{ "BoxMount", "read_only", "boolean", "the box may not write" },
	{ "BoxMount", "uid", "integer", "who owns it in the box; 0" },
	{ "BoxMount", "gid", "integer", "likewise" },
	{ "BoxChange", "name", "string", "the new name" },
	{ "BoxChange", "cpu", "figure", "as of a new box; likewise the others" },
	{ "BoxChange", "memory", "figure", "bytes or \"512M\"; 0: no limit" },
	{ "BoxChange", "disk", "figure", "bytes or \"10G\"; 0: no limit" },
	{ "BoxChange", "pids", "integer", "processes and threads; 0: no limit" },
	{ "BoxChange", "on_limit", "string", "notify, pause or stop" },
	{ "BoxSave", "name", "string", "of the image; none when absent" },
	{ "BoxSave", "config", "ImageConfig", "what differs from the box's image" },
	{ "BoxSave", "cache_key", "string", "of a step of a build" },
	{ "DiffLine", "change", "string", "added changed removed" },
	{ "DiffLine", "path", "string", "what changed" },
	{ "DiffLine", "path_b64", "string", "its bytes, when they are not UTF-8" },
	{ "DiffLine", "type", "string", "file dir symlink and so on; end in the last line" },
	{ "DiffLine", "size", "integer", "bytes" },
	{ "DiffLine", "mode", "string", "octal permissions" },
	{ "DiffLine", "changes", "integer", "end: how many lines came before" },
	{ "BoxStop", "timeout_ms", "integer", "between TERM and KILL; 10000" },
	{ "Box", "!id", "string", "lower-case letters and digits" },
	{ "Box", "!name", "string", "a DNS label" },
	{ "Box", "!state", "string",
		"creating starting running suspended stopping stopped removing" },
	{ "Box", "image", "string", "name the image had" },
	{ "Box", "image_id", "string", "id of the image" },
	{ "Box", "driver", "string", "how it is isolated" },
	{ "Box", "profile", "string", "what it may do inside" },
	{ "Box", "limits", "Limits", "0 is none" },
	{ "Box", "env", "{string}", "given to every program" },
	{ "Box", "labels", "{string}", "for finding boxes" },
	{ "Box", "command", "[string]?", "what runs at each start" },
	{ "Box", "remove_on_exit", "boolean", "gone when stopped" },
	{ "Box", "main", "[string]?", "what really runs as exec main, with the entrypoint" },
	{ "Box", "on_limit", "string", "notify pause stop" },
	{ "Box", "volumes", "[BoxVolume]", "named folders it has" },
	{ "Box", "mounts", "[BoxMount]", "folders of the host it has" },
	{ "Box", "ports", "[string]", "its image speaks of: 80/tcp" },
	{ "Box", "disk", "BoxDisk", "what it has written" },
	{ "Box", "created_at", "time", "when it was made" },
	{ "Box", "started_at", "time?", "its last start" },
	{ "Box", "ended_at", "time?", "its last end" },
	{ "Box", "end", "BoxEnd", "why it ended" },
	{ "Box", "reachable", "boolean", "box-init answers" },
	{ "Box", "warnings", "[string]", "what is not as asked" },
	{ "BoxEnd", "reason", "string", "one word, empty while it never ended" },
	{ "BoxEnd", "detail", "string", "one line for people" },
	{ "BoxDisk", "used_bytes", "integer?", "null where the pool does not count" },
	{ "BoxDisk", "limit_bytes", "integer", "0 is none" },
	{ "Limits", "cpu", "number", "CPUs" },
	{ "Limits", "memory", "integer", "bytes" },
	{ "Limits", "disk", "integer", "bytes" },
	{ "Limits", "pids", "integer", "processes and threads" },
	{ "BoxList", "!boxes", "[Box]", "oldest first" },
	{ "BoxList", "!next", "string?", "for after= of the next page" },
	{ "BoxStats", "!box", "string", "its id" },
	{ "BoxStats", "!name", "string", "its name" },
	{ "BoxStats", "cpu_us", "integer", "CPU time used" },
	{ "BoxStats", "memory_bytes", "integer", "memory used now" },
	{ "BoxStats", "memory_peak_bytes", "integer", "the most it used" },
	{ "BoxStats", "processes", "integer", "now" },
	{ "BoxStats", "oom_kills", "integer", "programs the kernel killed for memory" },
	{ "BoxStats", "throttled_us", "integer", "time held back by the CPU limit" },
	{ "BoxStats", "uptime_us", "integer", "since box-init began (one box only)" },
	{ "BoxStats", "execs_running", "integer", "programs started from outside (one box only)" },
	{ "BoxStats", "disk_bytes", "integer", "what it wrote and still uses" },
	{ "BoxStats", "disk_limit_bytes", "integer", "0: none" },
	{ "BoxStats", "pids_refused", "integer", "processes it could not start for its limit" },
	{ "BoxStats", "journal_bytes", "integer", "memory of kept output (one box only)" },
	{ "StatsList", "!boxes", "[BoxStats]", "running boxes" },
	{ "Process", "!pid", "integer", "inside the box" },
	{ "Process", "ppid", "integer", "its parent" },
	{ "Process", "uid", "integer", "inside the box" },
	{ "Process", "state", "string", "R S D Z T" },
	{ "Process", "rss_bytes", "integer", "memory" },
	{ "Process", "cpu_us", "integer", "CPU time used" },
	{ "Process", "started_us", "integer", "on the box's clock since its boot" },
	{ "Process", "exec", "string?", "exec it descends from" },
	{ "Process", "command", "string", "its command line, cut" },
	{ "ProcessList", "!processes", "[Process]", "the first 500" },
	{ "ProcessList", "!total", "integer", "all of them" },
	{ "ExecSpec", "!argv", "[string]", "program and arguments" },
	{ "ExecSpec", "env", "{string}", "in addition to the box's" },
	{ "ExecSpec", "cwd", "string", "absolute; the user's home when absent" },
	{ "ExecSpec", "user", "string", "name or number, optionally :group; root when absent" },
	{ "ExecSpec", "tty", "boolean", "run on a terminal" },
	{ "ExecSpec", "rows", "integer", "of the terminal; 24" },
	{ "ExecSpec", "cols", "integer", "of the terminal; 80" },
	{ "ExecSpec", "timeout_ms", "integer", "then TERM, and KILL after 5 s; 0: none" },
	{ "ExecSpec", "stdin", "string", "given to the program, then end of file" },
	{ "ExecSpec", "stdin_b64", "string", "the same in base64" },
	{ "ExecSpec", "detach", "boolean", "answer 201 with the exec at once" },
	{ "Exec", "!id", "string", "lower-case letters and digits" },
	{ "Exec", "pid", "integer", "inside the box" },
	{ "Exec", "argv", "[string]", "cut to 4096 bytes" },
	{ "Exec", "tty", "boolean", "runs on a terminal" },
	{ "Exec", "!state", "string", "running or exited" },
	{ "Exec", "exit_code", "integer?", "128 + signal when a signal ended it" },
	{ "Exec", "signal", "integer?", "number of the signal that ended it" },
	{ "Exec", "reason", "string", "running exited signaled timeout" },
	{ "Exec", "started_at", "time?", "when it began" },
	{ "Exec", "ended_at", "time?", "when it ended" },
	{ "Exec", "cpu_us", "integer", "CPU time used; 0 while it runs" },
	{ "Exec", "oldest_offset", "integer", "first byte of output still kept" },
	{ "Exec", "newest_offset", "integer", "behind the last byte of output" },
	{ "ExecList", "!execs", "[Exec]", "running ones and those ended lately" },
	{ "ExecSignal", "!signal", "figure", "name or number" },
	{ "ExecLine", "!type", "string", "start output gap exit error" },
	{ "ExecLine", "exec", "Exec", "start: the program" },
	{ "ExecLine", "stream", "string", "output: stdout or stderr" },
	{ "ExecLine", "offset", "integer", "output, gap: position in the journal" },
	{ "ExecLine", "data", "string", "output: text" },
	{ "ExecLine", "data_b64", "string", "output: bytes that are not UTF-8" },
	{ "ExecLine", "lost", "integer", "gap: bytes that are gone" },
	{ "ExecLine", "exit_code", "integer", "exit: as of an exec" },
	{ "ExecLine", "signal", "integer?", "exit: likewise" },
	{ "ExecLine", "reason", "string", "exit: exited signaled timeout" },
	{ "ExecLine", "duration_ms", "number", "exit: how long it ran" },
	{ "ExecLine", "cpu_us", "integer", "exit: CPU time used" },
	{ "ExecLine", "newest_offset", "integer", "exit: behind the last byte of output" },
	{ "ExecLine", "error", "ErrorBody", "error: what went wrong" },
	{ "Stat", "!name", "string", "of an entry, or the path asked for" },
	{ "Stat", "name_b64", "string", "its bytes, when they are not UTF-8" },
	{ "Stat", "!type", "string", "file dir symlink fifo socket char block" },
	{ "Stat", "mode", "string", "octal permissions" },
	{ "Stat", "uid", "integer", "inside the box" },
	{ "Stat", "gid", "integer", "inside the box" },
	{ "Stat", "size", "integer", "bytes" },
	{ "Stat", "mtime", "time?", "last change" },
	{ "Stat", "target", "string?", "of a symbolic link" },
	{ "Stat", "target_b64", "string", "its bytes, when they are not UTF-8" },
	{ "StatList", "!entries", "[Stat]", "in no order" },
	{ "FileMkdir", "!path", "string", "absolute" },
	{ "FileMkdir", "mode", "string", "0755" },
	{ "FileMkdir", "parents", "boolean", "make missing folders; one that is there is fine" },
	{ "FileRename", "!from", "string", "absolute" },
	{ "FileRename", "!to", "string", "absolute" },
	{ "FileChmod", "!path", "string", "absolute" },
	{ "FileChmod", "!mode", "string", "octal permissions" },
	{ "ArchiveResult", "!files", "integer", "unpacked" },
	{ "ArchiveResult", "!bytes", "integer", "of them" },
	{ "Event", "!offset", "integer", "rises by one" },
	{ "Event", "!at", "time", "when" },
	{ "Event", "!type", "string", "box.created and so on" },
	{ "Event", "box", "string?", "id" },
	{ "Event", "box_name", "string?", "name it had then" },
	{ "Event", "data", "object?", "more about it" },
	{ "EventList", "!events", "[Event]", "oldest first" },
	{ "EventList", "!next", "integer", "for since= of the next page" },
	{ "EventList", "!oldest", "integer", "first one still kept" },
	{ "Image", "!id", "string", "letters and digits" },
	{ "Image", "!name", "string", "boxes start from it by this name; empty: it has none" },
	{ "Image", "names", "[string]", "all its names" },
	{ "Image", "origin", "string", "how it was made" },
	{ "Image", "created_at", "time", "when" },
	{ "Image", "parent", "string", "id of the image it was made upon; empty: none" },
	{ "Image", "digest", "string", "of its manifest, or empty" },
	{ "Image", "cache_key", "string", "of a step of a build, or empty" },
	{ "Image", "size_bytes", "integer", "all its layers on disk; 0: not measured yet" },
	{ "Image", "own_bytes", "integer", "what would come back if it went" },
	{ "Image", "shared_bytes", "integer", "of layers other images have too" },
	{ "Image", "files", "integer", "in all layers" },
	{ "Image", "users", "integer", "boxes and images that use it" },
	{ "Image", "packages", "[string]", "asked for when it was built" },
	{ "Image", "config", "ImageConfig", "what its maker says of it" },
	{ "Image", "layers", "[ImageLayer]", "topmost first" },
	{ "ImageLayer", "!id", "string", "of the layer" },
	{ "ImageLayer", "size_bytes", "integer", "on disk" },
	{ "ImageLayer", "shared_by", "integer", "other images that have it" },
	{ "ImageConfig", "entrypoint", "[string]", "begins the command of a box" },
	{ "ImageConfig", "cmd", "[string]", "the command, when a box has none of its own" },
	{ "ImageConfig", "env", "[string]", "NAME=value" },
	{ "ImageConfig", "user", "string", "programs run as" },
	{ "ImageConfig", "workdir", "string", "programs start in" },
	{ "ImageConfig", "ports", "[string]", "80/tcp" },
	{ "ImageConfig", "labels", "{string}", "of its maker" },
	{ "ImageList", "!images", "[Image]", "newest first" },
	{ "ImageSpec", "name", "string", "debian" },
	{ "ImageSpec", "packages", "[string]", "in addition to the standard set" },
	{ "ImageSpec", "minimal", "boolean", "without the standard set" },
	{ "ImagePull", "!reference", "string", "python:3.11, host:5000/team/tool:v2" },
	{ "ImagePull", "name", "string", "what it is called here; the reference when absent" },
	{ "ImagePull", "insecure", "boolean", "plain HTTP or an unknown certificate is fine" },
	{ "ImageTag", "!name", "string", "another name for it" },
	{ "ImageGc", "dry", "boolean", "only tell" },
	{ "ImageGcResult", "!images", "[string]", "ids of images that went" },
	{ "ImageGcResult", "layers", "integer", "that went" },
	{ "ImageGcResult", "downloads", "integer", "that went" },
	{ "ImageGcResult", "bytes", "integer", "in all" },
	{ "ImageLine", "!type", "string", "progress done error" },
	{ "ImageLine", "stage", "string", "download unpack configure clean measure copy" },
	{ "ImageLine", "done", "integer", "of total" },
	{ "ImageLine", "total", "integer", "steps or bytes of the stage; 0: not known" },
	{ "ImageLine", "detail", "string", "one line for people" },
	{ "ImageLine", "image", "Image", "done: the image" },
	{ "ImageLine", "error", "ErrorBody", "error: what went wrong" },
	{ "Pool", "!kind", "string", "native loop folder" },
	{ "Pool", "path", "string", "where it is" },
	{ "Pool", "quota", "string", "simple full none" },
	{ "Pool", "total_bytes", "integer", "its size" },
	{ "Pool", "used_bytes", "integer", "of it" },
	{ "Pool", "free_bytes", "integer", "of it" },
	{ "Pool", "file_bytes", "integer", "what its file takes of the host's disk" },
	{ "Pool", "host_free_bytes", "integer", "on the host's disk" },
	{ "Pool", "size_max_bytes", "integer",
		"it grows no further by itself; 0: as the host can" },
	{ "Pool", "spares", "integer", "empty disks kept ready" },
	{ "Pool", "trash", "integer", "disks on their way out" },
	{ "Pool", "direct_io", "boolean", "its file is not cached twice" },
	{ "Pool", "full", "boolean", "no new boxes now" },
	{ "Pool", "why", "string", "full: what is" },
	{ "PoolGrow", "bytes", "figure", "by how much; 0 or absent: a step" },
	{ "ScrubLine", "!type", "string", "progress done error" },
	{ "ScrubLine", "done", "integer", "bytes read" },
	{ "ScrubLine", "total", "integer", "bytes in use" },
	{ "ScrubLine", "errors", "integer", "found so far" },
	{ "ScrubLine", "error", "ErrorBody", "error: what went wrong" },
	{ "Volume", "!name", "string", "a DNS label" },
	{ "Volume", "created_at", "time", "when it was made" },
	{ "Volume", "limit_bytes", "integer", "0 is none" },
	{ "Volume", "used_bytes", "integer?", "null where the pool does not count" },
	{ "Volume", "boxes", "[VolumeUser]", "boxes that have it" },
	{ "VolumeUser", "!name", "string", "of the box" },
	{ "VolumeUser", "path", "string", "where it sees the volume" },
	{ "VolumeUser", "read_only", "boolean", "it may not write" },
	{ "VolumeList", "!volumes", "[Volume]", "all of them" },
	{ "VolumeSpec", "!name", "string", "a DNS label" },
	{ "VolumeSpec", "size", "figure", "bytes or \"10G\"; 0: no limit" },
	{ "VolumeChange", "!size", "figure", "bytes or \"10G\"; 0: no limit" },
	{ "Workspace", "!id", "string", "id of the box it was of" },
	{ "Workspace", "box", "string", "name of that box" },
	{ "Workspace", "box_id", "string", "id of that box" },
	{ "Workspace", "kept_at", "time", "when the box was removed" },
	{ "Workspace", "size_bytes", "integer", "of its archive" },
	{ "Workspace", "files", "integer", "in it" },
	{ "WorkspaceList", "!workspaces", "[Workspace]", "newest first" },
	{ "WorkspaceLine", "path", "string", "in the workspace" },
	{ "WorkspaceLine", "type", "string", "file dir symlink and so on; end in the last line" },
	{ "WorkspaceLine", "size", "integer", "bytes" },
	{ "WorkspaceLine", "mode", "string", "octal permissions" },
	{ "WorkspaceLine", "mtime", "time?", "last change" },
	{ "WorkspaceLine", "entries", "integer", "end: how many lines came before" },
	{ "TokenSpec", "!name", "string", "a DNS label" },
	{ "TokenSpec", "scopes", "[string]",
		"read exec create admin; admin allows all; read when absent" },
	{ "TokenSpec", "expires_in", "string", "30d, 12h and so on; never when absent" },
	{ "Token", "!id", "string", "letters and digits" },
	{ "Token", "!name", "string", "a DNS label" },
	{ "Token", "!scopes", "[string]", "what it allows" },
	{ "Token", "created_at", "time", "when it was made" },
	{ "Token", "expires_at", "time?", "when it ends" },
	{ "Token", "last_used_at", "time?", "to the minute" },
	{ "NewToken", "!token", "string", "the secret, shown once; the rest as of a token" },
	{ "NewToken", "!id", "string", "letters and digits" },
	{ "TokenList", "!tokens", "[Token]", "oldest first" },
	{ "Info", "version", "string", "of the daemon" },
	{ "Info", "home", "string", "where its state is" },
	{ "Info", "socket", "string", "the unix door" },
	{ "Info", "listen", "string?", "the TCP door" },
	{ "Info", "boxes", "integer", "all of them" },
	{ "Info", "leaving", "integer", "removed ones that are still being cleaned up" },
	{ "Info", "drivers", "object", "what each can do here" },
	{ "Doctor", "!ok", "boolean", "boxes can run" },
	{ "Doctor", "!checks", "[Check]", "one after the other" },
	{ "Check", "!name", "string", "what was looked at" },
	{ "Check", "!ok", "boolean", "as it should be" },
	{ "Check", "detail", "string", "what was found" },
	{ "Check", "hint", "string", "what to do" },
	{ "Check", "required", "boolean", "boxes cannot run without it" },
	{ "Health", "!ok", "boolean", "true" },
	{ "Shutdown", "purge", "boolean", "remove all boxes first" },
	{ "OpenApi", NULL, NULL, NULL },
};

static json_t *type_json(const char *type);

static json_t *plain_type(const char *type)
{
	static const char *const words[] = { "string", "integer", "boolean", "number", "object" };

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (!strcmp(type, words[i]))
			return json_pack("{s:s}", "type", type);
	if (!strcmp(type, "time"))
		return json_pack("{s:s,s:s}", "type", "string", "format", "date-time");
	if (!strcmp(type, "figure"))
		return json_pack("{s:[ss]}", "type", "number", "string");
	return json_pack("{s:o}", "$ref", json_sprintf("#/components/schemas/%s", type));
}

static json_t *type_json(const char *type)
{
	size_t len = strlen(type);
	_cleanup_free_ char *inner = NULL;

	if (type[len - 1] == '?') {
		inner = xstrndup(type, len - 1);
		return json_pack("{s:[o,{s:s}]}", "anyOf", type_json(inner), "type", "null");
	}
	if (*type != '[' && *type != '{')
		return plain_type(type);
	inner = xstrndup(type + 1, len - 2);
	if (*type == '[')
		return json_pack("{s:s,s:o}", "type", "array", "items", type_json(inner));
	return json_pack("{s:s,s:o}", "type", "object", "additionalProperties", type_json(inner));
}

static void add_field(json_t *schema, const struct field *field)
{
	bool required = *field->name == '!';
	const char *name = field->name + required;
	json_t *type = type_json(field->type);
	json_t *list = json_object_get(schema, "required");

	json_object_set_new(type, "description", json_string(field->about));
	json_object_set_new(json_object_get(schema, "properties"), name, type);
	if (!required)
		return;
	if (!list) {
		list = json_array();
		json_object_set_new(schema, "required", list);
	}
	json_array_append_new(list, json_string(name));
}

json_t *schemas_json(void)
{
	json_t *all = json_object();

	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		json_t *schema = json_object_get(all, fields[i].schema);

		if (!schema) {
			schema = json_pack("{s:s,s:{}}", "type", "object", "properties");
			json_object_set_new(all, fields[i].schema, schema);
		}
		if (fields[i].name)
			add_field(schema, &fields[i]);
	}
	return all;
}
