//! The table of a runtime's functions. `sys.rs` has their declarations, which it gives to the macro here.

/// Makes a table of C declarations, and a function that finds all of them by name.
macro_rules! functions {
    ($(pub fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions of a runtime.
        #[derive(Debug)]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Finds the functions by name, or returns the name of one that is missing.
            ///
            /// # Safety
            /// What `find` returns for a name is the function of this name as the headers declare it.
            pub unsafe fn find(
                mut find: impl FnMut(&std::ffi::CStr) -> Option<*const std::ffi::c_void>,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        let name = std::ffi::CStr::from_bytes_with_nul(name.as_bytes()).map_err(|_| name)?;
                        let found = find(name).filter(|found| !found.is_null()).ok_or(stringify!($name))?;
                        // SAFETY: by this function's contract, the address is that of a function of this type.
                        unsafe {
                            std::mem::transmute::<
                                *const std::ffi::c_void,
                                unsafe extern "C" fn($($type),*) $(-> $result)?,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}
pub(crate) use functions;
