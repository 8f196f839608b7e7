//! The code of the book, chapter by chapter, which its pages include by anchors; and checks of the pages themselves.

mod closures;
mod coming;
mod contexts;
mod errors;
mod faults;
mod files;
mod graphs;
mod kernels;
mod library;
mod math;
mod pages;
mod printing;
mod services;
mod streams;
mod traces;
