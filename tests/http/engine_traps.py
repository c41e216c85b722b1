#!/usr/bin/env python3
"""Where libmicrohttpd 0.9.75 does what one does not expect, and what holds us off each such place. It is given HTTP/1.0 alone, a
connection for one request.

  a timeout within the library: stall at 128, 256 ... ready sockets    engine_stall; check_floors.sh: MHD_run_wait(.., 0) only
  a FIN that came with data is lost                                    engine_leak
  suspended in the first final call: a half-closed client's answer     engine_half_close
  resumed, then asleep                                                 here: wakes_for_answers
  answered in the first call: the connection ends                      it does anyway; the plain reader's: keeps_connections
  one more call without data after a suspension amid the body          engine_large, engine_slices
  deadlines of single connections are walked every turn                check_floors.sh: none set; engine_limits has our own
  a large pool of memory for a connection is cleared each request      engine_counts: bytes cleared
  its thread pool leaves shards idle                                   here: spreads_connections
  quiesced, or stopped while one is suspended                          check_floors.sh; engine_drain, d_stop, end of engine_large
  it answers some bad heads itself, with two status lines              it is given none: engine_heads
  doubled and foreign framing gets through, or hangs                   likewise: engine_framing, CHUNK_ROWS in refusal_rows
  it looks at a long chunk-size line again and again                   it is given no chunked body: silence in engine_heads
  %00 shortens the path                                                refusal_rows, "encoded NUL"
  texts of a head lie in its pool, where the body comes behind them    here: keeps_texts
  select() above descriptor 1023                                       here: serves_high_descriptors
  fresh memory for each request                                        engine_counts: no mmap, munmap, brk or madvise
  its assertions are off: suspend, queue and resume out of place       engine_bytes, engine_leak: random aborts, every answer compared
"""
import resource
import sys
import time

from daemon import cpu_daemon, random_values, read_answer, request, row_request, seed

# Some milliseconds of work on another thread: the connection is suspended until it is done.
SLOW = request("POST", "/v2/models/matmul/infer?shape=128,256&shape=256,128&datatype=FP64", (), bytes(2 * 8 * 128 * 256))
SLOW10 = SLOW.replace(b" HTTP/1.1", b" HTTP/1.0", 1)  # libmicrohttpd's


def exchange(s, data):
    s.sendall(data)
    return read_answer(s)


def wakes_for_answers(_):
    """Alone on its shard a suspended connection is answered as soon as the work is done: nothing else wakes the loop within 50 ms.
    The quickest of twenty counts, since other load on the machine is no sleep."""
    encode = []
    with cpu_daemon("--threads", "1") as daemon:
        for _ in range(20):
            with daemon.dial() as s:
                status, fields, _ = exchange(s, SLOW10)
            assert status == 200
            encode.append(float(fields["server-timing"].split("encode;dur=")[1].split(",")[0]))
        assert daemon.stop() == 0
    assert min(encode) < 30, "answers were written %.1f ms after the work was done" % min(encode)


def keeps_connections(generator):
    """A GET, an answer, a refusal before the body and one behind it: all on one connection."""
    head, body = row_request(random_values(generator, 64))
    with cpu_daemon("--threads", "1") as daemon, daemon.dial() as s:
        for _ in range(3):
            for data, status in ((request("GET", "/v2"), 200), (head + body, 200), (request("POST", "/v2/nothing", (), body), 404),
                                 (request("POST", "/v2/models/softmax/infer", (), b"{"), 400), (SLOW, 200)):
                answer = exchange(s, data)
                assert answer and answer[0] == status and "connection" not in answer[1], (status, answer and answer[:2])
        assert daemon.stop() == 0


def routes_anew(generator):
    """A route is kept for the next request with the same target, but never for a target of which only the line had come."""
    head, body = row_request(random_values(generator, 64))
    with cpu_daemon("--threads", "1") as daemon:
        for left in (head.split(b"\r\n")[0] + b"\r\nHost: ", head.split(b"\r\n")[0] + b"\r\nHost: localhost\r\nHost: a\r\n\r\n"):
            with daemon.dial() as s:
                assert exchange(s, request("GET", "/v2"))[0] == 200
                s.sendall(left)
                time.sleep(0.1)
            time.sleep(0.1)
            with daemon.dial() as s:  # in the place of the one that has gone
                for _ in range(2):
                    assert exchange(s, head + body)[2] == body
                assert exchange(s, head.replace(b"POST", b"GET ", 1).replace(b"GET  ", b"GET ", 1) + body)[0] == 405
        assert daemon.stop() == 0


def spreads_connections(generator):
    """Sixteen connections on four shards: each shard's own count of runs is that of four."""
    shards, rounds = 4, 5
    head, body = row_request(random_values(generator, 64))
    plan = request("GET", "/v2/models/reduce/plan?shape=64,1&datatype=INT32&axis=1&op=max")
    with cpu_daemon("--threads", str(shards)) as daemon:
        time.sleep(0.2)  # the connection that asked whether it is ready has gone
        connections = []
        for _ in range(4 * shards):
            connections.append(daemon.dial())
            assert exchange(connections[-1], request("GET", "/v2"))[0] == 200
        for s in connections * rounds:
            assert exchange(s, head + body)[2] == body
        runs = [int(exchange(s, plan)[2].split(b'"runs":')[1].split(b",")[0]) for s in connections]
        assert runs == [4 * rounds] * len(runs), "requests that each connection's shard has run: %s" % runs
        for s in connections:
            s.close()
        assert daemon.stop() == 0


def keeps_texts(_):
    """Id and trace are those of the head, although a body of many pools' size came behind it and the work took a while."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with cpu_daemon("--threads", "1") as daemon, daemon.dial() as kept:
        for i, slow in enumerate((SLOW, SLOW10) * 3):
            fields = "X-Request-Id: mine-%d\r\ntraceparent: 00-%s-00f067aa0ba902b7-01\r\n" % (i, trace)
            with daemon.dial() as once:
                answer = exchange(kept if slow == SLOW else once, slow.replace(b"Host:", fields.encode() + b"Host:", 1))
            assert answer[0] == 200 and answer[1]["x-request-id"] == "mine-%d" % i, answer[:2]
            assert "trace;desc=00-%s-" % trace in answer[1]["server-timing"], answer[1]
        assert daemon.stop() == 0


def serves_high_descriptors(generator):
    """More connections than select() knows descriptors; the newest is served as well, through a suspension too."""
    count = 1100
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 2 * count:
        print("not tried: serves_high_descriptors, the limit is %d descriptors" % hard)
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * count, hard))
    head, body = row_request(random_values(generator, 64))
    with cpu_daemon("--threads", "1", "--connections", str(count + 10)) as daemon:
        connections = [daemon.dial() for _ in range(count)]
        for s in connections[::100] + connections[-3:]:
            assert exchange(s, head + body)[2] == body
        assert daemon.descriptors() > 1024 + 3
        assert exchange(connections[-1], SLOW)[0] == 200
        assert exchange(connections[-2], SLOW10)[0] == 200
        for s in connections:
            s.close()
        assert daemon.stop() == 0


def main():
    generator = seed()
    for test in (wakes_for_answers, keeps_connections, routes_anew, spreads_connections, keeps_texts, serves_high_descriptors):
        begun = time.monotonic()
        test(generator)
        print("%-24s %.1f s" % (test.__name__, time.monotonic() - begun))
    sys.exit(0)


main()
