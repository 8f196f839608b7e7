//! A package that uses hostcall through another library's macro.

hostcall_test_device::empty_kernel!(nothing_to_do);

#[cfg(test)]
mod tests {
    #[test]
    fn a_library_may_stand_between() {
        assert_eq!(super::nothing_to_do.path(), "hostcall_test_user::nothing_to_do");
    }
}
