# Made by `hostcall bind --python` of catalog.toml: make it anew where the service changes.
# A host serves an object of a class that is derived from one of these and has its methods.
import hostcall


@hostcall.service(number=900, typed=True)
class Catalog:
    # Things by number.

    def of(self, item: hostcall.u64, from_: hostcall.i32) -> hostcall.f32:
        raise NotImplementedError

    # Its name, and how long that is.
    def label(self, item: hostcall.u64, prefix: str) -> tuple[hostcall.u64, bytes]:
        raise NotImplementedError

    def pair(self, is_first: bool) -> tuple[hostcall.u8, hostcall.i64]:
        raise NotImplementedError

    def sold(self, item: hostcall.u64, raw: bytes) -> None:
        raise NotImplementedError
