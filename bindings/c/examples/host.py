"""A host in Python of the kernels of programs/inventory, with ctypes: what inventory.c does.

    python3 host.py LIBRARY IMAGE [LANES]

LIBRARY is libhostcall.so, IMAGE what `hostcall build programs/inventory` made.
"""

import sys
import threading
import time
from ctypes import (CDLL, CFUNCTYPE, POINTER, Structure, Union, byref, c_bool, c_char, c_char_p, c_double, c_float,
                    c_int8, c_int16, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64,
                    c_void_p, string_at)

OK, REFUSED = 0, 4
U32, U64, SLICE, GLOBAL_SLICE = 3, 4, 34, 36
FIND, ADD, TRANSFER = range(3)
FOUND, ADDED, DUPLICATE, MOVED = range(1, 5)


class Method(Structure):
    _fields_ = [("number", c_uint64), ("name", c_char_p)]


class Place(Structure):
    _fields_ = [("workgroup", c_uint32 * 3), ("wave", c_uint32), ("kernel", c_char * 128)]


class Call(Structure):
    _fields_ = [("method", c_uint32), ("launch", c_uint32), ("lane", c_uint32), ("is_post", c_bool),
                ("words", POINTER(c_uint64)), ("word_count", c_size_t), ("bytes", c_void_p),
                ("byte_count", c_size_t), ("reply_capacity", c_size_t), ("caller", c_void_p)]


Handler = CFUNCTYPE(c_int32, c_void_p, POINTER(Call), c_void_p)
FreeState = CFUNCTYPE(None, c_void_p)


class Service(Structure):
    _fields_ = [("methods", POINTER(Method)), ("method_count", c_size_t), ("handler", Handler),
                ("state", c_void_p), ("free_state", FreeState), ("is_inline", c_bool)]


class Grid(Structure):
    _fields_ = [("workgroups", c_uint32 * 3), ("lanes", c_uint32 * 3), ("workgroup_memory_bytes", c_uint32)]


class Plain(Structure):
    _fields_ = [("of", c_void_p), ("bytes", c_void_p)]


class Value(Union):
    _fields_ = [("u8", c_uint8), ("u16", c_uint16), ("u32", c_uint32), ("u64", c_uint64), ("i8", c_int8),
                ("i16", c_int16), ("i32", c_int32), ("i64", c_int64), ("f32", c_float), ("f64", c_double),
                ("boolean", c_uint8), ("plain", Plain), ("buffer", c_void_p)]


class Argument(Structure):
    _fields_ = [("kind", c_uint32), ("value", Value)]


class Hostcall:
    """The library. A call that fails raises its error's text."""

    def __init__(self, path):
        self.library = CDLL(path)
        self.library.hostcall_error_text.restype = c_char_p
        self.library.hostcall_caller_place.restype = c_bool

    def __getattr__(self, name):
        function = getattr(self.library, "hostcall_" + name)

        def call(*arguments):
            error = c_void_p()
            status = function(*arguments, byref(error))
            if status != OK:
                text = self.library.hostcall_error_text(error).decode()
                self.library.hostcall_error_free(byref(error))
                raise HostcallError(status, text)

        return call

    def make(self, name, *arguments):
        """Calls a function that puts a handle at the address it gets last."""
        handle = c_void_p()
        getattr(self, name)(*arguments, byref(handle))
        return handle

    def free(self, what, handle):
        getattr(self.library, f"hostcall_{what}_free")(byref(handle))
        assert not handle


class HostcallError(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Store:
    """The service's side. Handlers run on several threads at once."""

    def __init__(self, hostcall):
        self.hostcall, self.lock, self.items, self.places = hostcall, threading.Lock(), {}, set()

    # The words of Rust's values: Option is 0, or 1 and the value; Result is 0 and the value, or 1 and the error; an enum
    # is the variant's place and its fields.

    def find(self, words, _text, reply):
        item = self.items.get(words[0])
        if item is None:
            return [0, 0]
        name = item[0]
        assert self.hostcall.library.hostcall_reply_bytes(c_void_p(reply), name, c_size_t(len(name))) == OK
        return [1, item[1]]

    def add(self, words, text, _reply):
        if words[0] in self.items:
            return [1, 0, 0]
        self.items[words[0]] = [text, words[1]]
        return [0, 0, 0]

    def transfer(self, words, _text, _reply):
        source, target, amount = words
        if source not in self.items or target not in self.items:
            return [1, 1, 0]
        if self.items[source][1] < amount:
            return [1, 2, self.items[source][1]]
        self.items[source][1] -= amount
        self.items[target][1] += amount
        return [0, self.items[source][1], 0]

    def handle(self, _state, call, reply):
        try:
            call, place = call.contents, Place()
            words = call.words[:call.word_count]
            text = string_at(call.bytes, call.byte_count) if call.byte_count else b""
            with self.lock:
                if self.hostcall.library.hostcall_caller_place(c_void_p(call.caller), byref(place)):
                    self.places.add((place.kernel, place.workgroup[0]))
                result = [self.find, self.add, self.transfer][call.method](words, text, reply)
            result = (c_uint64 * len(result))(*result)
            return self.hostcall.library.hostcall_reply_words(c_void_p(reply), result, c_size_t(len(result)))
        except Exception as error:  # An exception cannot go on into the library.
            print("host.py:", error, file=sys.stderr)
            return 1


def main(library, image_path, lanes="300"):
    lanes = int(lanes)
    hostcall = Hostcall(library)
    store, freed = Store(hostcall), []
    methods = (Method * 3)(*[Method(512 + i, b"Inventory::" + name)
                             for i, name in enumerate([b"find", b"add", b"transfer"])])
    # ctypes' functions live as long as these do.
    handler, free_state = Handler(store.handle), FreeState(freed.append)
    service = Service(methods, 3, handler, None, free_state, False)

    options = hostcall.make("options_new", b"cpu")
    hostcall.options_service(options, byref(service))
    device = c_void_p()
    hostcall.device_open(byref(options), byref(device))
    image = hostcall.make("image_load", device, image_path.encode())
    stock = hostcall.make("image_kernel", image, b"stock")
    move = hostcall.make("image_kernel", image, b"transfer")
    stream = hostcall.make("stream_new", device)
    key_buffer = hostcall.make("buffer_alloc", device, c_uint32(U64), c_size_t(lanes))
    to_buffer = hostcall.make("buffer_alloc", device, c_uint32(U64), c_size_t(lanes))
    outcome_buffer = hostcall.make("buffer_alloc", device, c_uint32(U32), c_size_t(lanes))

    keys = (c_uint64 * lanes)(*[i if i % 4 == 3 else i + 1 for i in range(lanes)])
    to = (c_uint64 * lanes)(*[key % 3 + 1 for key in keys])
    outcomes = (c_uint32 * lanes)()
    hostcall.buffer_write(key_buffer, keys, c_size_t(8 * lanes))
    hostcall.stream_write(stream, to_buffer, to, c_size_t(8 * lanes))

    grid = Grid((c_uint32 * 3)((lanes + 63) // 64, 1, 1), (c_uint32 * 3)(64, 1, 1), 0)

    def launch(kernel, *arguments):
        given = (Argument * len(arguments))()
        for argument, (kind, value) in zip(given, arguments):
            argument.kind = kind
            if kind == U64:
                argument.value.u64 = value
            else:
                argument.value.buffer = value
        hostcall.kernel_launch(kernel, stream, byref(grid), given, c_size_t(len(arguments)), None)

    def run(kernel, *arguments):
        launch(kernel, *arguments, (GLOBAL_SLICE, outcome_buffer))
        hostcall.stream_synchronize(stream)
        hostcall.buffer_read(outcome_buffer, outcomes, c_size_t(4 * lanes))
        return list(outcomes)

    did = run(stock, (SLICE, key_buffer), (U64, 10))
    assert did.count(ADDED) == len(store.items) == len(set(keys))
    assert did.count(FOUND) + did.count(DUPLICATE) == lanes - len(store.items)
    assert run(move, (SLICE, key_buffer), (SLICE, to_buffer), (U64, 3)).count(MOVED) == lanes
    assert store.places == {(name, at) for name in (b"stock", b"transfer") for at in range(grid.workgroups[0])}
    try:
        launch(stock, (SLICE, key_buffer))
        raise AssertionError("too few arguments were taken")
    except HostcallError as error:
        assert error.status == REFUSED and "stock" in str(error)

    for what, handle in [("device", device), ("image", image), ("kernel", stock), ("kernel", move),
                         ("buffer", key_buffer), ("buffer", to_buffer), ("buffer", outcome_buffer),
                         ("stream", stream)]:
        hostcall.free(what, handle)
    while not freed:  # The library's last thread may do it.
        time.sleep(0.001)
    assert freed == [None]
    for key, (name, amount) in sorted(store.items.items()):
        print(f"{key} {name.decode()}: {amount}")


if __name__ == "__main__":
    main(*sys.argv[1:])
