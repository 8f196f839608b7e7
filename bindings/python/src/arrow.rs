//! Records of pages as a stream of Arrow's, by its C interfaces (<https://arrow.apache.org/docs/format/CDataInterface.html> and
//! CStreamInterface.html): libraries that know Arrow take it without one of them being needed here. Records lie row by row and
//! Arrow's columns do not, so the values are copied once.

use crate::channel::RawPage;
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

/// What callbacks return whose caller then asks for the error's text: that of `errno.h`.
const EIO: c_int = 5;

/// `struct ArrowSchema`.
#[repr(C)]
struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private: *mut c_void,
}

/// `struct ArrowArray`.
#[repr(C)]
struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Array,
    dictionary: *mut Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private: *mut c_void,
}

/// `struct ArrowArrayStream`.
#[repr(C)]
struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Stream, *mut Schema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Stream, *mut Array) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Stream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private: *mut c_void,
}

// SAFETY: any one thread at a time may use a stream, by its interface; what it owns is `State`.
unsafe impl Send for Stream {}

/// A column as `_channel.py` describes it: name, Arrow's format, offset and size of its values in a record.
#[derive(FromPyObject)]
pub struct Column(String, String, usize, usize);

/// What a stream owns.
struct State {
    /// Gives pages.
    pages: Py<PyAny>,
    columns: Vec<(CString, CString, usize, usize)>,
    record_bytes: usize,
    error: CString,
}

/// What a schema owns.
struct OwnedSchema {
    _texts: [CString; 2],
    children: Vec<*mut Schema>,
}

/// What an array owns.
struct OwnedArray {
    /// Words, so that values are aligned.
    _values: Vec<u64>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut Array>,
}

impl Schema {
    fn new(name: CString, format: CString, children: Vec<Self>) -> Self {
        let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        let mut owned = Box::new(OwnedSchema { _texts: [name, format], children });
        Self {
            format: owned._texts[1].as_ptr(),
            name: owned._texts[0].as_ptr(),
            metadata: std::ptr::null(),
            flags: 0,
            n_children: owned.children.len() as i64,
            children: owned.children.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(Self::released),
            private: Box::into_raw(owned).cast(),
        }
    }

    /// # Safety
    /// `schema` is one of [`Schema::new`] that was not released.
    unsafe extern "C" fn released(schema: *mut Self) {
        // SAFETY: by the caller's promise it lies there, and owns a box of this type.
        let owned = unsafe {
            (*schema).release = None;
            Box::from_raw((*schema).private.cast::<OwnedSchema>())
        };
        for child in owned.children {
            // SAFETY: children are boxes; one that somebody moved elsewhere has no `release` any more.
            unsafe {
                if let Some(release) = (*child).release {
                    release(child);
                }
                drop(Box::from_raw(child));
            }
        }
    }
}

impl Array {
    fn new(length: usize, values: Option<Vec<u64>>, children: Vec<Self>) -> Self {
        let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        // No value is missing, so that the first buffer, which says which are there, is left out.
        let mut buffers = vec![std::ptr::null()];
        buffers.extend(values.as_ref().map(|values| values.as_ptr().cast::<c_void>()));
        let values = values.unwrap_or_default();
        let mut owned = Box::new(OwnedArray { _values: values, buffers, children });
        Self {
            length: length as i64,
            null_count: 0,
            offset: 0,
            n_buffers: owned.buffers.len() as i64,
            n_children: owned.children.len() as i64,
            buffers: owned.buffers.as_mut_ptr(),
            children: owned.children.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(Self::released),
            private: Box::into_raw(owned).cast(),
        }
    }

    /// The array that says that there are no more.
    fn end() -> Self {
        Self {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: null_mut(),
            children: null_mut(),
            dictionary: null_mut(),
            release: None,
            private: null_mut(),
        }
    }

    /// # Safety
    /// `array` is one of [`Array::new`] that was not released.
    unsafe extern "C" fn released(array: *mut Self) {
        // SAFETY: by the caller's promise it lies there, and owns a box of this type.
        let owned = unsafe {
            (*array).release = None;
            Box::from_raw((*array).private.cast::<OwnedArray>())
        };
        for child in owned.children {
            // SAFETY: children are boxes; one that somebody moved elsewhere has no `release` any more.
            unsafe {
                if let Some(release) = (*child).release {
                    release(child);
                }
                drop(Box::from_raw(child));
            }
        }
    }
}

/// Returns a column of records: `size` bytes at `offset` of each, or a bit of each where the format is that of `bool`.
fn column(records: &[u8], record_bytes: usize, format: &CString, offset: usize, size: usize) -> Vec<u64> {
    let rows = records.chunks_exact(record_bytes);
    if format.as_bytes() == b"b" {
        let mut bits = vec![0u64; rows.len().div_ceil(64)];
        for (row, record) in rows.enumerate() {
            bits[row / 64] |= u64::from(record[offset] != 0) << (row % 64);
        }
        return bits;
    }
    let mut bytes = Vec::with_capacity((rows.len() * size).next_multiple_of(8));
    rows.for_each(|record| bytes.extend_from_slice(&record[offset..][..size]));
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

impl State {
    fn schema(&self) -> Schema {
        let child = |(name, format, ..): &(CString, CString, usize, usize)| {
            Schema::new(name.clone(), format.clone(), Vec::new())
        };
        Schema::new(CString::default(), c"+s".into(), self.columns.iter().map(child).collect())
    }

    /// Returns the next page's records.
    fn next(&self) -> Result<Array, String> {
        let page = Python::try_attach(|py| {
            let pages = self.pages.bind(py);
            match pages.call_method0("__next__") {
                Ok(page) => {
                    let page = page.cast_into::<RawPage>().map_err(|error| error.to_string())?;
                    let page = page.get();
                    Ok(Some(py.detach(|| page.bytes())))
                }
                Err(error) if error.is_instance_of::<PyStopIteration>(py) => Ok(None),
                Err(error) => Err(error.to_string()),
            }
        });
        let Some(records) = page.unwrap_or_else(|| Err("the interpreter has ended".into()))? else {
            return Ok(Array::end());
        };
        let length = records.len() / self.record_bytes;
        let columns = self.columns.iter().map(|(_, format, offset, size)| {
            let values = column(&records, self.record_bytes, format, *offset, *size);
            Array::new(length, Some(values), Vec::new())
        });
        Ok(Array::new(length, None, columns.collect()))
    }
}

impl Stream {
    /// # Safety
    /// `stream` is one of [`stream`] that was not released, and nobody else uses it now.
    unsafe fn state<'a>(stream: *mut Self) -> &'a mut State {
        // SAFETY: by the caller's promise; the state is a box until then.
        unsafe { &mut *(*stream).private.cast() }
    }

    unsafe extern "C" fn get_schema(stream: *mut Self, out: *mut Schema) -> c_int {
        // SAFETY: as the interface has it, the stream is open and `out` has room for a schema.
        unsafe { out.write(Self::state(stream).schema()) };
        0
    }

    unsafe extern "C" fn get_next(stream: *mut Self, out: *mut Array) -> c_int {
        // SAFETY: as the interface has it, the stream is open, and one thread calls it at a time.
        let state = unsafe { Self::state(stream) };
        let found = catch_unwind(AssertUnwindSafe(|| state.next()));
        match found.unwrap_or_else(|_| Err("hostcall panicked, which is a bug in hostcall".into())) {
            Ok(array) => {
                // SAFETY: `out` has room for an array.
                unsafe { out.write(array) };
                0
            }
            Err(error) => {
                state.error = CString::new(error.replace('\0', " ")).expect("no zeros are left");
                EIO
            }
        }
    }

    unsafe extern "C" fn get_last_error(stream: *mut Self) -> *const c_char {
        // SAFETY: as the interface has it, the stream is open; the text is there until it is called again.
        unsafe { Self::state(stream).error.as_ptr() }
    }

    unsafe extern "C" fn released(stream: *mut Self) {
        // SAFETY: as the interface has it, the stream is open, and its state a box.
        unsafe {
            (*stream).release = None;
            drop(Box::from_raw((*stream).private.cast::<State>()));
        }
    }
}

/// Returns a capsule with a stream of the records of pages, which an iterator gives.
#[pyfunction]
pub fn arrow_stream<'py>(
    py: Python<'py>,
    pages: Py<PyAny>,
    columns: Vec<Column>,
    record_bytes: usize,
) -> PyResult<Bound<'py, PyCapsule>> {
    let text =
        |text: String| CString::new(text).map_err(|_| PyValueError::new_err("a name has no zeros in it"));
    if record_bytes == 0 || columns.iter().any(|Column(_, _, offset, size)| offset + size > record_bytes) {
        return Err(PyValueError::new_err("a record has its columns in it"));
    }
    let columns = columns
        .into_iter()
        .map(|Column(name, format, offset, size)| Ok::<_, PyErr>((text(name)?, text(format)?, offset, size)));
    let columns = columns.collect::<PyResult<Vec<_>>>()?;
    let state = Box::new(State { pages, columns, record_bytes, error: CString::default() });
    let stream = Stream {
        get_schema: Some(Stream::get_schema),
        get_next: Some(Stream::get_next),
        get_last_error: Some(Stream::get_last_error),
        release: Some(Stream::released),
        private: Box::into_raw(state).cast(),
    };
    PyCapsule::new_with_value_and_destructor(py, stream, c"arrow_array_stream", |mut stream, _| {
        // Who took the stream has left none.
        if let Some(release) = stream.release {
            // SAFETY: it was not released.
            unsafe { release(&mut stream) };
        }
    })
}
