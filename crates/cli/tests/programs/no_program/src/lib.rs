//! An ordinary library.
