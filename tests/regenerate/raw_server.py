"""A server in a thread that sends given bytes, whatever it is asked."""

import contextlib
import socket
import threading
import time
from contextlib import contextmanager


@contextmanager
def serving(*replies, pause_s=0.0):
    """One reply for each connection: at once, or byte by byte with pauses; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, replies, pause_s), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)  # wakes `accept`
    thread.join()


def http(body, *headers, status="200 OK"):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def _serve(listening, replies, pause_s):
    for reply in replies:
        with contextlib.suppress(OSError):  # the client has left, or the test
            peer, _ = listening.accept()
            with peer:
                peer.recv(65536)
                for part in [reply[i : i + 1] for i in range(len(reply))] if pause_s else [reply]:
                    peer.sendall(part)
                    time.sleep(pause_s)
