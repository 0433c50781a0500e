"""The route table: what Crosslane does with each MPI procedure that takes a buffer, a request or a message.

A procedure is one row here and, where it needs thought, one function in src/interpose. The wrappers (wrappers.py), the
coverage that `crosslane doctor` prints and the mutation run all read this table.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Single:
    """A buffer of `count` elements of `datatype`; direction and form are C++ expressions."""

    buffer: str
    count: str
    datatype: str
    direction: str
    form: str = "packed"
    blocks: str | None = None  # the buffer holds `count` elements for each of so many peers
    received: bool = False  # a status tells how much of it was written
    contiguous: bool = False  # the host copy has no gaps


@dataclass(frozen=True)
class Blocks:
    """A buffer of one block a peer, with counts and displacements; `datatype` is one type or, for w, an array."""

    buffer: str
    counts: str
    displacements: str | None
    datatype: str
    length: str
    direction: str
    form: str = "packed"
    each_type: bool = False


@dataclass(frozen=True)
class Staged:
    """Host copies of the buffers, and the application's own MPI on them."""

    buffers: tuple[Single | Blocks, ...]
    kind: str  # blocking, nonblocking, persistent, one_sided or split
    setup: str = ""  # C++ that the directions and lengths use
    lengths: tuple[tuple[str, str], ...] = ()  # lengths of array arguments, by name
    looked: str = ""  # the hand-written function that takes the call on a rank that looks at what it receives
    sent: str = ""  # a send: the mode (manual::Mode) in which it may go by another protocol


@dataclass(frozen=True)
class Manual:
    """Hand-written: src/interpose has a function of this name that takes the call's arguments; "forward": the call goes straight on."""

    route: str
    reason: str = "manual"


@dataclass(frozen=True)
class Maker:
    """Makes a communicator: forwarded, and it is then known where it comes from, and to the teams."""

    parent: str  # empty: it is a session's
    child: str
    naming: str = "counted"  # or "told", where only its members call it, so that nothing they have counted names it; or "none"
    started: bool = False  # it exists once a request is complete


IN, OUT, INOUT = "Direction::in", "Direction::out", "Direction::inout"


def with_peer(peer: str, direction: str) -> str:
    """Direction of a buffer of which MPI_PROC_NULL takes, or gives, nothing."""
    return f"({peer} == mpi::proc_null ? Direction::none : {direction})"


def in_place(buffer: str, otherwise: str = OUT) -> str:
    """Direction of a receive buffer that is also the input when `buffer` is MPI_IN_PLACE."""
    return f"({buffer} == mpi::in_place() ? {INOUT} : {otherwise})"


def fetching(_buffer: str, count: str, datatype: str) -> str:
    """Direction of a buffer that one-sided calls fetch to: the target may have less than it holds."""
    return f"fetching(route.process(), {count}, {datatype}, target_count, target_datatype)"


PEERS = "const Peers peers = route.peers(comm);"
NEIGHBOURS = "const Neighbours neighbours = route.neighbours(comm);"

AT_ROOT_IN = f"(peers.is_root(root) ? {IN} : Direction::none)"
AT_ROOT_OUT = f"(peers.is_root(root) ? {in_place('sendbuf')} : Direction::none)"
TO_ROOT = f"(peers.contributes(root) ? {IN} : Direction::none)"
EXSCAN_OUT = f"(peers.rank > 0 || sendbuf == mpi::in_place() ? {INOUT} : Direction::none)"
FROM_ROOT = f"(peers.contributes(root) ? {OUT} : Direction::none)"


@dataclass(frozen=True)
class Collective:
    """One collective operation; its three forms (blocking, nonblocking, persistent) share the buffers."""

    buffers: tuple[Single | Blocks, ...]
    setup: str = PEERS
    lengths: tuple[tuple[str, str], ...] = field(default=())


SEND = Single("sendbuf", "sendcount", "sendtype", IN)
# Who has no neighbour to send to passes no buffer.
TO_NEIGHBOURS = "(neighbours.out == 0 ? Direction::none : Direction::in)"
NEIGHBOUR_SEND = Single("sendbuf", "sendcount", "sendtype", TO_NEIGHBOURS)
MIRROR_SEND = Single("sendbuf", "count", "datatype", IN, "mirror")

COLLECTIVES: dict[str, Collective] = {
    "Bcast": Collective(
        (Single("buffer", "count", "datatype", f"(peers.is_root(root) ? {IN} : peers.contributes(root) ? {OUT} : Direction::none)"),)
    ),
    "Gather": Collective(
        (Single("sendbuf", "sendcount", "sendtype", TO_ROOT), Single("recvbuf", "recvcount", "recvtype", AT_ROOT_OUT, blocks="peers.count"))
    ),
    "Gatherv": Collective(
        (
            Single("sendbuf", "sendcount", "sendtype", TO_ROOT),
            Blocks("recvbuf", "recvcounts", "displs", "recvtype", "peers.at_root(root)", AT_ROOT_OUT),
        ),
        lengths=(("recvcounts", "peers.at_root(root)"), ("displs", "peers.at_root(root)")),
    ),
    "Scatter": Collective(
        (Single("sendbuf", "sendcount", "sendtype", AT_ROOT_IN, blocks="peers.count"), Single("recvbuf", "recvcount", "recvtype", FROM_ROOT))
    ),
    "Scatterv": Collective(
        (
            Blocks("sendbuf", "sendcounts", "displs", "sendtype", "peers.at_root(root)", AT_ROOT_IN),
            Single("recvbuf", "recvcount", "recvtype", FROM_ROOT),
        ),
        lengths=(("sendcounts", "peers.at_root(root)"), ("displs", "peers.at_root(root)")),
    ),
    "Allgather": Collective((SEND, Single("recvbuf", "recvcount", "recvtype", in_place("sendbuf"), blocks="peers.count"))),
    "Allgatherv": Collective(
        (SEND, Blocks("recvbuf", "recvcounts", "displs", "recvtype", "peers.count", in_place("sendbuf"))),
        lengths=(("recvcounts", "peers.count"), ("displs", "peers.count")),
    ),
    "Alltoall": Collective(
        (
            Single("sendbuf", "sendcount", "sendtype", IN, blocks="peers.count"),
            Single("recvbuf", "recvcount", "recvtype", in_place("sendbuf"), blocks="peers.count"),
        )
    ),
    "Alltoallv": Collective(
        (
            Blocks("sendbuf", "sendcounts", "sdispls", "sendtype", "peers.count", IN),
            Blocks("recvbuf", "recvcounts", "rdispls", "recvtype", "peers.count", in_place("sendbuf")),
        ),
        lengths=tuple((a, "peers.count") for a in ("sendcounts", "sdispls", "recvcounts", "rdispls")),
    ),
    "Alltoallw": Collective(
        (
            Blocks("sendbuf", "sendcounts", "sdispls", "sendtypes", "peers.count", IN, each_type=True),
            Blocks("recvbuf", "recvcounts", "rdispls", "recvtypes", "peers.count", in_place("sendbuf"), each_type=True),
        ),
        lengths=tuple((a, "peers.count") for a in ("sendcounts", "sdispls", "recvcounts", "rdispls")),
    ),
    "Reduce": Collective(
        (Single("sendbuf", "count", "datatype", TO_ROOT, "mirror"), Single("recvbuf", "count", "datatype", AT_ROOT_OUT, "mirror"))
    ),
    "Allreduce": Collective((MIRROR_SEND, Single("recvbuf", "count", "datatype", in_place("sendbuf"), "mirror")), setup=""),
    # Rank 0 of an inclusive or exclusive scan may leave its result untouched: the receive buffer keeps what it held.
    "Scan": Collective((MIRROR_SEND, Single("recvbuf", "count", "datatype", in_place("sendbuf"), "mirror")), setup=""),
    # On rank 0 of an exclusive scan it is not even looked at, but in place.
    "Exscan": Collective((MIRROR_SEND, Single("recvbuf", "count", "datatype", EXSCAN_OUT, "mirror"))),
    "Reduce_scatter_block": Collective(
        (
            Single("sendbuf", "recvcount", "datatype", IN, "mirror", blocks="peers.local"),
            Single("recvbuf", "recvcount", "datatype", in_place("sendbuf"), "mirror", blocks="(sendbuf == mpi::in_place() ? peers.local : 1)"),
        )
    ),
    "Reduce_scatter": Collective(
        (
            Single("sendbuf", "total", "datatype", IN, "mirror"),
            Single("recvbuf", "(sendbuf == mpi::in_place() ? total : MPI_Count{recvcounts[peers.rank]})", "datatype", in_place("sendbuf"), "mirror"),
        ),
        setup=PEERS + " const MPI_Count total = route.total(\"recvcounts\", recvcounts, peers.local);",
        lengths=(("recvcounts", "peers.local"),),
    ),
    "Barrier": Collective((), setup=""),
    # Blocks of absent neighbours (MPI_PROC_NULL in a Cartesian topology) are not written: they keep what they held.
    "Neighbor_allgather": Collective((NEIGHBOUR_SEND, Single("recvbuf", "recvcount", "recvtype", INOUT, blocks="neighbours.in")), setup=NEIGHBOURS),
    "Neighbor_allgatherv": Collective(
        (NEIGHBOUR_SEND, Blocks("recvbuf", "recvcounts", "displs", "recvtype", "neighbours.in", INOUT)),
        setup=NEIGHBOURS,
        lengths=(("recvcounts", "neighbours.in"), ("displs", "neighbours.in")),
    ),
    "Neighbor_alltoall": Collective(
        (
            Single("sendbuf", "sendcount", "sendtype", IN, blocks="neighbours.out"),
            Single("recvbuf", "recvcount", "recvtype", INOUT, blocks="neighbours.in"),
        ),
        setup=NEIGHBOURS,
    ),
    "Neighbor_alltoallv": Collective(
        (
            Blocks("sendbuf", "sendcounts", "sdispls", "sendtype", "neighbours.out", IN),
            Blocks("recvbuf", "recvcounts", "rdispls", "recvtype", "neighbours.in", INOUT),
        ),
        setup=NEIGHBOURS,
        lengths=(
            ("sendcounts", "neighbours.out"),
            ("sdispls", "neighbours.out"),
            ("recvcounts", "neighbours.in"),
            ("rdispls", "neighbours.in"),
        ),
    ),
    "Neighbor_alltoallw": Collective(
        (
            Blocks("sendbuf", "sendcounts", "sdispls", "sendtypes", "neighbours.out", IN, each_type=True),
            Blocks("recvbuf", "recvcounts", "rdispls", "recvtypes", "neighbours.in", INOUT, each_type=True),
        ),
        setup=NEIGHBOURS,
        lengths=(
            ("sendcounts", "neighbours.out"),
            ("sdispls", "neighbours.out"),
            ("recvcounts", "neighbours.in"),
            ("rdispls", "neighbours.in"),
        ),
    ),
}


def direct(send: str | None, receive: str | None, *, root: bool = False, op: bool = False, along: str = "") -> dict[str, str]:
    """What a collective tells the teams (interpose/collectives.h): members of CollectiveCall and C++ expressions.

    A side is its buffer, count and type; arrays of counts (and, after colons, displacements and types) where each block has its own,
    or one count for all in brackets. `along` edges, it is this call among neighbours, in the form FORM.
    """
    call = {}
    blocks = {}
    for side, prefix in ((send, "send"), (receive, "receive")):
        if side is not None:
            buffer, count, *datatype = side.split()
            call |= {prefix: buffer}
            if count.startswith("["):
                blocks[f"{prefix}_blocks"] = "BlockArrays(" + count.strip("[]").replace(":", ", ") + ")"
            else:
                call |= {f"{prefix}_count": count}
            if datatype:
                call |= {f"{prefix}_type": datatype[0]}
    call |= blocks
    if op:
        call["op"] = "op"
    if root:
        call["root"] = "root"
    if along:
        call["edges"] = f"{{team::NeighbourCall::{along}, team::CallForm::FORM}}"
    return call


SENT, GOT, REDUCED = "sendbuf sendcount sendtype", "recvbuf recvcount recvtype", "recvbuf count datatype"

# The collectives that teams can run directly between GPUs: the collective's name there, and its arguments.
DIRECT: dict[str, tuple[str, dict[str, str]]] = {
    "Allreduce": ("allreduce", direct("sendbuf count datatype", REDUCED, op=True)),
    "Reduce": ("reduce", direct("sendbuf count datatype", REDUCED, op=True, root=True)),
    "Scan": ("scan", direct("sendbuf count datatype", REDUCED, op=True)),
    "Exscan": ("exscan", direct("sendbuf count datatype", REDUCED, op=True)),
    "Reduce_scatter_block": (
        "reduce_scatter_block",
        direct("sendbuf recvcount datatype", "recvbuf recvcount datatype", op=True),
    ),
    "Bcast": ("broadcast", direct(None, "buffer count datatype", root=True)),
    "Gather": ("gather", direct(SENT, GOT, root=True)),
    "Scatter": ("scatter", direct(SENT, GOT, root=True)),
    "Allgather": ("allgather", direct(SENT, GOT)),
    "Alltoall": ("alltoall", direct(SENT, GOT)),
    "Gatherv": ("gatherv", direct(SENT, "recvbuf [recvcounts:displs] recvtype", root=True)),
    "Scatterv": ("scatterv", direct("sendbuf [sendcounts:displs] sendtype", GOT, root=True)),
    "Allgatherv": ("allgatherv", direct(SENT, "recvbuf [recvcounts:displs] recvtype")),
    "Alltoallv": (
        "alltoallv",
        direct("sendbuf [sendcounts:sdispls] sendtype", "recvbuf [recvcounts:rdispls] recvtype"),
    ),
    # Its blocks are packed ones to the others, whatever their types.
    "Alltoallw": (
        "alltoallv",
        direct("sendbuf [sendcounts:sdispls:sendtypes]", "recvbuf [recvcounts:rdispls:recvtypes]"),
    ),
    "Reduce_scatter": (
        "reduce_scatter",
        direct("sendbuf [recvcounts] datatype", "recvbuf [recvcounts] datatype", op=True),
    ),
    # Among neighbours: between two ranks goes what goes along all edges between them, mostly nothing.
    "Neighbor_allgather": ("alltoallv", direct(SENT, "recvbuf [recvcount] recvtype", along="gather")),
    "Neighbor_allgatherv": ("alltoallv", direct(SENT, "recvbuf [recvcounts:displs] recvtype", along="gather")),
    "Neighbor_alltoall": (
        "alltoallv",
        direct("sendbuf [sendcount] sendtype", "recvbuf [recvcount] recvtype", along="alltoall"),
    ),
    "Neighbor_alltoallv": (
        "alltoallv",
        direct("sendbuf [sendcounts:sdispls] sendtype", "recvbuf [recvcounts:rdispls] recvtype", along="alltoallv"),
    ),
    "Neighbor_alltoallw": (
        "alltoallv",
        direct("sendbuf [sendcounts:sdispls:sendtypes]", "recvbuf [recvcounts:rdispls:recvtypes]", along="alltoallw"),
    ),
}

# The collectives that crosslane.h can put on a stream: those of them that have a name there, and one without buffers, whose blocking
# form is the MPI's own.
ON_STREAM: dict[str, str] = {
    name: f"crosslane_{collective}_enqueue"
    for name, (collective, arguments) in DIRECT.items()
    if name != "Alltoallw" and "edges" not in arguments
} | {"Barrier": "crosslane_barrier_enqueue"}


def direct_form(procedure: str) -> tuple[str, str] | None:
    """The row of DIRECT that a procedure is a form of, and which: blocking, nonblocking or persistent."""
    if procedure in DIRECT:
        return procedure, "blocking"
    if procedure.endswith("_init") and procedure.removesuffix("_init") in DIRECT:
        return procedure.removesuffix("_init"), "persistent"
    blocking = procedure[1:2].upper() + procedure[2:]
    return (blocking, "nonblocking") if procedure.startswith("I") and blocking in DIRECT else None


# Procedures that may tell that operations are complete whose requests were freed, with the argument that says whether they tell anything.
TELLING: dict[str, str] = dict.fromkeys(
    ["Recv", "Mrecv", "Sendrecv", "Sendrecv_replace", "Wait", "Waitall", "Waitany", "Waitsome", *COLLECTIVES], ""
) | {"Test": "flag", "Testall": "flag", "Testany": "flag", "Testsome": "outcount"}

# Makers of communicators. All ranks of a parent call those that are counted in the same order.
MAKERS = {
    "Comm_dup": Maker("comm", "newcomm"),
    "Comm_dup_with_info": Maker("comm", "newcomm"),
    "Comm_idup": Maker("comm", "newcomm", started=True),
    "Comm_idup_with_info": Maker("comm", "newcomm", started=True),
    "Comm_create": Maker("comm", "newcomm"),
    "Comm_create_group": Maker("comm", "newcomm", "told"),
    "Comm_create_from_group": Maker("", "newcomm", "none"),
    "Comm_split": Maker("comm", "newcomm"),
    "Comm_split_type": Maker("comm", "newcomm"),
    "Intercomm_create": Maker("local_comm", "newintercomm", "none"),
    "Intercomm_create_from_groups": Maker("", "newintercomm", "none"),
    "Intercomm_merge": Maker("intercomm", "newintracomm", "told"),
    "Cart_create": Maker("comm_old", "comm_cart"),
    "Cart_sub": Maker("comm", "newcomm"),
    "Graph_create": Maker("comm_old", "comm_graph"),
    "Dist_graph_create": Maker("comm_old", "comm_dist_graph"),
    "Dist_graph_create_adjacent": Maker("comm_old", "comm_dist_graph"),
}

BUF = Single("buf", "count", "datatype", IN)
RECEIVED = Single("buf", "count", "datatype", OUT, received=True)

# The first operand of these is not looked at by MPI_NO_OP, and may be anything.
OPERAND = f"(op == next.handles->no_op ? Direction::none : {IN})"


def table() -> dict[str, Staged | Manual | Maker]:
    """The whole table, by procedure name without MPI_."""
    rows: dict[str, Staged | Manual | Maker] = {}
    rows |= MAKERS

    for name, collective in COLLECTIVES.items():
        if collective.buffers:
            rows[name] = Staged(collective.buffers, "blocking", collective.setup, collective.lengths)
            rows["I" + name[0].lower() + name[1:]] = Staged(collective.buffers, "nonblocking", collective.setup, collective.lengths)
            rows[name + "_init"] = Staged(collective.buffers, "persistent", collective.setup, collective.lengths)

    rows["Barrier"] = Manual("forward", "forwarded")

    for name in ("Send", "Bsend", "Ssend", "Rsend"):
        modes = {"Send": "standard", "Ssend": "synchronous", "Rsend": "ready"}
        rows[name] = Staged((BUF,), "blocking", sent=modes.get(name, ""))
        rows["I" + name.lower()] = Staged((BUF,), "nonblocking", sent=modes.get(name, ""))
        rows[name + "_init"] = Staged((BUF,), "persistent", sent=modes.get(name, ""))
    rows["Recv"] = Staged((RECEIVED,), "blocking", looked="recv")
    rows["Irecv"] = Staged((RECEIVED,), "nonblocking", looked="irecv")
    rows["Recv_init"] = Staged((RECEIVED,), "persistent", looked="recv_init")
    rows["Mrecv"] = Staged((RECEIVED,), "blocking", looked="mrecv")
    rows["Imrecv"] = Staged((RECEIVED,), "nonblocking", looked="imrecv")
    for name in ("Comm_free", "Comm_disconnect"):
        rows[name] = Manual(name.lower(), "forwarded")
    for name in ("Probe", "Iprobe", "Mprobe", "Improbe", "Cancel"):
        rows[name] = Manual(name.lower(), "looked")
    exchange = (
        Single("sendbuf", "sendcount", "sendtype", with_peer("dest", IN)),
        Single("recvbuf", "recvcount", "recvtype", with_peer("source", OUT), received=True),
    )
    rows["Sendrecv"] = Staged(exchange, "blocking", looked="sendrecv")
    rows["Sendrecv_replace"] = Staged((Single("buf", "count", "datatype", INOUT, received=True),), "blocking", looked="sendrecv_replace")
    # MPICH's requests of these do not say how much arrived: all is copied out, over what was copied in.
    kept = Single("recvbuf", "recvcount", "recvtype", with_peer("source", INOUT))
    rows["Isendrecv"] = Staged((exchange[0], kept), "nonblocking", looked="isendrecv")
    rows["Isendrecv_replace"] = Staged((Single("buf", "count", "datatype", INOUT),), "nonblocking", looked="isendrecv_replace")
    rows["Psend_init"] = Manual("partitioned_send_init", "staged")
    rows["Precv_init"] = Manual("partitioned_receive_init", "staged")
    for name in ("Pready", "Pready_range", "Pready_list", "Parrived"):
        rows[name] = Manual(name.lower(), "request")

    rows["Reduce_local"] = Staged(
        (Single("inbuf", "count", "datatype", IN, "mirror"), Single("inoutbuf", "count", "datatype", INOUT, "mirror")), "blocking"
    )
    for name in ("Pack", "Pack_external"):
        rows[name] = Manual("pack", "kernels")
    for name in ("Unpack", "Unpack_external"):
        rows[name] = Manual("unpack", "kernels")

    # The file view's data representation depends on the type: the host copy keeps it.
    write = Single("buf", "count", "datatype", IN, "mirror")
    read = Single("buf", "count", "datatype", OUT, "mirror", received=True)
    # ROMIO's status of nonblocking collective reads says that all was read, also past the end of the file, and so does OMPIO's of
    # MPI_File_read_all.
    untold = Single(read.buffer, read.count, read.datatype, INOUT, read.form)
    for suffix in ("", "_at", "_all", "_at_all", "_shared", "_ordered"):
        rows["File_write" + suffix] = Staged((write,), "blocking")
        rows["File_read" + suffix] = Staged((untold if suffix == "_all" else read,), "blocking")
        if suffix != "_ordered":
            rows["File_iwrite" + suffix] = Staged((write,), "nonblocking")
            rows["File_iread" + suffix] = Staged((untold if suffix.endswith("_all") else read,), "nonblocking")
    for suffix in ("_all", "_at_all", "_ordered"):
        rows[f"File_read{suffix}_begin"] = Staged((untold if suffix == "_all" else read,), "split")
        rows[f"File_write{suffix}_begin"] = Staged((write,), "split")
        for direction in ("read", "write"):
            rows[f"File_{direction}{suffix}_end"] = Manual("split_end", "staged")

    # Accumulating ones keep their type, which says what is combined.
    origin = ("origin_addr", "origin_count", "origin_datatype")
    result = ("result_addr", "result_count", "result_datatype")
    combined = Single(*origin, OPERAND, "mirror")
    fetched = Single(*result, fetching(*result), "mirror")
    for prefix in ("", "R"):
        for name, buffers in (
            ("Put", (Single(*origin, IN),)),
            # MPICH 4.0 completes the request of MPI_Rget before all has come where either side has gaps: see mpi::gets_complete_early.
            ("Get", (Single(*origin, fetching(*origin), contiguous=prefix == "R"),)),
            ("Accumulate", (combined,)),
            ("Get_accumulate", (combined, fetched)),
        ):
            rows[prefix + (name.lower() if prefix else name)] = Staged(buffers, "one_sided")
    one = ("1", "datatype")
    fetched_one = Single("result_addr", *one, OUT, "mirror")
    rows["Fetch_and_op"] = Staged((Single("origin_addr", *one, OPERAND, "mirror"), fetched_one), "one_sided")
    rows["Compare_and_swap"] = Staged(
        (Single("origin_addr", *one, IN, "mirror"), Single("compare_addr", *one, IN, "mirror"), fetched_one), "one_sided"
    )
    rows["Win_create"] = Manual("win_create", "shadowed")
    rows["Win_shared_query"] = Manual("win_shared_query", "window")
    for name in (
        "Win_create_dynamic",
        "Win_attach",
        "Win_detach",
        "Win_free",
        "Win_get_attr",
        "Win_fence",
        "Win_start",
        "Win_complete",
        "Win_post",
        "Win_wait",
        "Win_test",
        "Win_lock",
        "Win_lock_all",
        "Win_unlock",
        "Win_unlock_all",
        "Win_flush",
        "Win_flush_all",
        "Win_flush_local",
        "Win_flush_local_all",
        "Win_sync",
    ):
        rows[name] = Manual(name.lower(), "window")
    for owner in ("Buffer_{}", "Comm_{}_buffer", "Session_{}_buffer"):
        rows[owner.format("attach")] = Manual("attach", "staged")
        rows[owner.format("detach")] = Manual("detach", "staged")

    for name in (
        "Wait",
        "Waitall",
        "Waitany",
        "Waitsome",
        "Test",
        "Testall",
        "Testany",
        "Testsome",
        "Request_free",
        "Request_get_status",
        "Request_get_status_all",
        "Request_get_status_any",
        "Request_get_status_some",
        "Start",
        "Startall",
        "File_close",
    ):
        rows[name] = Manual(name.lower(), "request")
    rows["File_open"] = Manual("file_open", "process")
    for name in ("Init", "Init_thread", "Session_init", "Error_string"):
        rows[name] = Manual(name.lower(), "process")
    return rows
