"""Stands between an SFTP client and the server that box-init brings along: sftpbridge.py SOCKET [USER]

For `sftp -D` and other clients that start their server: stdin and stdout are the client's."""

import os
import select
import sys

import initclient as ic


def main():
    conn = ic.Conn(sys.argv[1])
    # A box-init that has no server of its own would run this program, which does not exist.
    channel = conn.start(f"sftp{os.getpid()}", "/none/sftp-server", user="".join(sys.argv[2:]), stdin=ic.SFTP)
    channel.wait_reply()
    ended = False
    while not channel.closed:
        wanted = [conn.sock] if ended or channel.room < ic.DATA_MAX + 9 else [conn.sock, sys.stdin]
        ready = select.select(wanted, [], [])[0]
        if sys.stdin in ready:
            data = os.read(0, ic.DATA_MAX)
            ended = not data
            if data:
                channel.data(data)
            else:
                channel.send(ic.END)
        if conn.sock in ready:
            conn.step()
        out = memoryview(bytes(channel.out))
        channel.out.clear()
        while out:
            out = out[os.write(1, out):]
        os.write(2, channel.err)
        channel.err.clear()
    return channel.exit["code"] if channel.exit else 1


sys.exit(main())
