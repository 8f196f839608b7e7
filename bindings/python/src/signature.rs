//! Types of a method for functions that other processes' kernels call: `hostcall.remote` is in Python but for
//! these.

use crate::words::Signature;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

/// The types of a method whose calls have words alone.
#[pyclass(frozen)]
pub struct RawSignature(Signature);

#[pymethods]
impl RawSignature {
    #[new]
    fn new(name: &str, arguments: Vec<String>, results: Vec<String>) -> PyResult<Self> {
        let signature = Signature::of(&arguments, &results)?;
        if arguments.iter().chain(&results).any(|kind| kind == "bytes" || kind == "str") {
            let what = format!("{name} has `bytes` or `str`, and words alone come from other processes");
            return Err(PyTypeError::new_err(what));
        }
        Ok(Self(signature))
    }

    /// Returns the hash of name and types that a Rust trait's method has.
    fn schema(&self, name: &str) -> u64 {
        self.0.schema(name)
    }

    /// Returns the arguments of a call. `None` if its words are none.
    fn decode<'py>(&self, py: Python<'py>, words: &[u8]) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (words, rest) = words.as_chunks::<8>();
        if !rest.is_empty() {
            return Ok(None);
        }
        let words: Vec<_> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        self.0.decode(py, &words, &[])
    }

    /// Returns the words of what a function returned.
    fn encode<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let (mut words, mut bytes) = (Vec::new(), Vec::new());
        self.0.encode(value, &mut words, &mut bytes)?;
        let words: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        Ok(PyBytes::new(value.py(), &words))
    }
}
