//! Which trace points somebody wants.

use hostcall_abi::launch::LaunchId;
use wildmatch::WildMatch;

/// Which trace points a recording wants. The default is all of them, of all launches.
///
/// Patterns match a whole name; `*` stands for any characters, `?` for one.
///
/// ```
/// use hostcall::PointFilter;
///
/// let filter = PointFilter::default().name("tile*").name("loss").kernel("train_*");
/// # let _ = filter;
/// ```
#[derive(Clone, Debug, Default)]
pub struct PointFilter {
    names: Vec<WildMatch>,
    kernels: Vec<WildMatch>,
    launch: Option<LaunchId>,
}

impl PointFilter {
    /// Wants points whose name, or an event's format, is so. Several patterns want what one of them does.
    pub fn name(mut self, pattern: &str) -> Self {
        self.names.push(WildMatch::new(pattern));
        self
    }

    /// Wants points of kernels, and of contexts, whose name is so.
    pub fn kernel(mut self, pattern: &str) -> Self {
        self.kernels.push(WildMatch::new(pattern));
        self
    }

    /// Wants points of this launch alone.
    pub fn launch(mut self, launch: LaunchId) -> Self {
        self.launch = Some(launch);
        self
    }

    pub(crate) fn wants_point(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|pattern| pattern.matches(name))
    }

    pub(crate) fn wants_launch(&self, launch: LaunchId, kernel: &str) -> bool {
        self.launch.is_none_or(|wanted| wanted == launch)
            && (self.kernels.is_empty() || self.kernels.iter().any(|pattern| pattern.matches(kernel)))
    }
}
