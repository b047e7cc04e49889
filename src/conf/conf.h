/* conf.h - where files are and how the daemon listens: /etc/boxyard.conf, then the environment
 *
 * The file (BOX_CONF names another one) has `key = value` lines and # comments. An unknown key is
 * an error that names its line. Environment: BOX_HOME, BOX_RUN, BOX_LISTEN
 * and others; docs/conf.md has them all. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { CONF_SPARES_MAX = 16, CONF_VM_SPARES_MAX = 16 };
#define CONF_AUTO    UINT64_MAX
#define CONF_FOREVER UINT64_MAX

struct conf {
	char *home; /* home = /var/lib/boxyard */
	/* run = /run/boxyard; HOME/run when BOX_HOME alone chooses the daemon */
	char *run;
	bool home_given;  /* by BOX_HOME */
	char *name;	  /* derived from home: "boxyard" or "boxyard-<8 hex>"; used in cgroup
			  * names */
	char *socket;	  /* run/box.sock */
	char *ssh_socket; /* run/ssh.sock: SSH of this machine's users, see ssh/proxy.h */
	char *group;	  /* group = boxyard: its members may use the socket */
	bool listen_tcp;  /* listen = 127.0.0.1:30001 | off */
	char *address;
	uint16_t port; /* 0: any */
	/* PEM files: the TCP port speaks TLS and may be on any address; "": plain, loopback only */
	char *listen_certificate, *listen_key;
	int log_level;	    /* log_level = debug|info|warn|error */
	uint64_t max_boxes; /* max_boxes = 4096 */
	/* idle_suspend = 30s: an idle box is suspended after this time; idle_hibernate = 15m: a
	 * suspended box is hibernated after this time. 0: never (off). */
	uint64_t idle_suspend_ms, idle_hibernate_ms;
	/* spares = 2: boxes started ahead of need, for `box new` to take; 0: none */
	uint64_t spares;
	uint64_t default_memory, default_pids,
		default_cpu_milli; /* default_memory = 4G, ... 0: none */
	uint64_t default_disk;	   /* default_disk = 20G; 0: none */
	/* yard_memory, yard_pids = auto|off|20G, 8192: limits of all boxes together; CONF_AUTO:
	 * derived from the machine, 0: none */
	uint64_t yard_memory, yard_pids;
	char *pool;	    /* pool = auto|native|loop|folder */
	uint64_t pool_size; /* pool_size = 64G: size of a new loop file; 0: chosen by the free
			     * space */
	/* pool_max = 200G: the loop file grows up to this by itself; 0: as far as the host has
	 * space */
	uint64_t pool_max;
	uint64_t spare_disks; /* spare_disks = 4: empty disks made in advance */
	/* mount_roots = own:/srv/agents:/data: folders that may be mounted into boxes. Below the
	 * paths: for every caller. own, the default: for callers on the socket, folders that belong
	 * to them. none: no folder. */
	char **mount_roots;
	bool mount_own;
	char *registry;	     /* registry = HOST: used for image names without a host; "" */
	char *registry_auth; /* registry_auth = FILE: credentials; "": the usual files */
	/* insecure_registries = HOST:PORT,…: plain HTTP is allowed there */
	char **registries_insecure;
	char *ca_certificates; /* ca_certificates = machine|none|PATH: also trusted inside boxes */
	char *default_policy;  /* default_policy = dev: a preset, or the path of a file */
	char *url_domain;      /* url_domain = boxes.example.com: box URLs exist below it too; "" */
	char *url_listen;      /* url_listen = ADDRESS:PORT: box URLs by TLS; the address, or NULL:
			   * off */
	/* ssh_ca = PATH: public keys of CAs whose SSH certificates are accepted, as lines of
	 * authorized_keys; "": none */
	char *ssh_ca;
	/* ssh_listen = 127.0.0.1:30022 | off: where SSH logins come in; the address, or NULL: off.
	 * ssh_port 0: any free one, the default of a daemon that BOX_HOME chooses. */
	char *ssh_listen;
	uint16_t ssh_port;
	bool ssh_given; /* by the file or the environment */
	/* ssh_linger = 1h | never: how long a program runs on whose SSH client is gone; 0: it is
	 * hung up at once. CONF_FOREVER: never */
	uint64_t ssh_linger_ms;
	bool ssh_agent; /* ssh_agent = on|off: clients may forward their agent (ssh -A) */
	uint16_t url_port;
	char *url_certificate, *url_key; /* PEM files; "" */
	/* Defaults for what boxes may do from inside: inside_fork_depth = 3 (forks of forks),
	 * inside_fork_count = 10 (at the same time), inside_fork_rate = 30 (a minute). */
	uint64_t inside_fork_depth, inside_fork_count, inside_fork_rate;
	/* hibernate_on_shutdown = yes|no: hibernate boxes when the daemon ends */
	bool hibernate_on_shutdown;
	uint64_t snapshots_keep; /* snapshots_keep = 20: automatic snapshots of a box that are kept;
				  * 0: any number */
	uint64_t snapshots_keep_age_ms; /* snapshots_keep_age = 7d: how long automatic snapshots are
				        * kept; 0: for ever */
	char *driver;			/* driver = ns: the only driver boxes may use; "": any */
	char *criu; /* criu = PATH: the program that captures processes; "": next to this program */
	/* vm_kernel = PATH: the folder with the kernel of VMs, see engine/vm/kernel.h; "": next to
	 * this program */
	char *vm_kernel;
	/* vm_spares = 2: QEMU processes that wait for a box, of each size used lately; 0: none */
	uint64_t vm_spares;
	char *resolv_conf; /* resolv_conf = /etc/resolv.conf: how the host resolves names */
};

int conf_load(struct conf *ret, struct err *err);
void conf_done(struct conf *conf);
