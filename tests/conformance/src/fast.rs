//! The errors that the fast forms of mathematics may have.

/// How far a fast form may be off.
pub struct FastForm {
    /// What it computes, of two numbers.
    exact: fn(f64, f64) -> f64,
    /// Whether its bound is documented for these two numbers.
    is_bounded: fn(f64, f64) -> bool,
    /// Whether the error at this number is a difference, not units of the last place.
    is_absolute: fn(f64) -> bool,
    /// The largest error at this number.
    bound: fn(f64) -> f64,
}

impl FastForm {
    /// The form of this name.
    pub fn named(name: &str) -> Option<Self> {
        let everywhere = |_: f64, _: f64| true;
        let beside_one = |x: f64| (0.5..=2.0).contains(&x);
        let half_turn = |x: f64, _: f64| x.abs() <= std::f64::consts::PI;
        let ulps = |_: f64| false;
        Some(match name {
            "fast_cos" => Self {
                exact: |x, _| x.cos(),
                is_bounded: half_turn,
                is_absolute: |_| true,
                bound: |_| (-20f64).exp2(),
            },
            "fast_sin" => Self {
                exact: |x, _| x.sin(),
                is_bounded: half_turn,
                is_absolute: |_| true,
                bound: |_| (-20f64).exp2(),
            },
            "fast_div" => Self {
                exact: |x, y| x / y,
                is_bounded: |_, y| (-126f64..=126.0).contains(&y.abs().log2()),
                is_absolute: ulps,
                bound: |_| 2.1,
            },
            "fast_exp" => Self {
                exact: |x, _| x.exp(),
                is_bounded: everywhere,
                is_absolute: ulps,
                bound: |x| 2.0 + 1.2 * x.abs(),
            },
            "fast_exp2" => {
                Self { exact: |x, _| x.exp2(), is_bounded: everywhere, is_absolute: ulps, bound: |_| 2.1 }
            }
            "fast_ln" => Self {
                exact: |x, _| x.ln(),
                is_bounded: everywhere,
                is_absolute: beside_one,
                bound: |x| if (0.5..=2.0).contains(&x) { (-21f64).exp2() } else { 4.0 },
            },
            "fast_log2" => Self {
                exact: |x, _| x.log2(),
                is_bounded: everywhere,
                is_absolute: beside_one,
                bound: |x| if (0.5..=2.0).contains(&x) { (-22f64).exp2() } else { 3.0 },
            },
            "fast_recip" => {
                Self { exact: |x, _| 1.0 / x, is_bounded: everywhere, is_absolute: ulps, bound: |_| 1.0 }
            }
            "fast_rsqrt" => Self {
                exact: |x, _| 1.0 / x.sqrt(),
                is_bounded: everywhere,
                is_absolute: ulps,
                bound: |_| 2.0,
            },
            "fast_sqrt" => {
                Self { exact: |x, _| x.sqrt(), is_bounded: everywhere, is_absolute: ulps, bound: |_| 1.0 }
            }
            "fast_tanh" => Self {
                exact: |x, _| x.tanh(),
                is_bounded: everywhere,
                is_absolute: |_| true,
                bound: |_| (-10f64).exp2(),
            },
            _ => return None,
        })
    }

    /// The largest error at this number.
    pub fn bound(&self, x: f32) -> f64 {
        (self.bound)(x.into())
    }

    /// Returns the error of a result, or `None` where none is documented: for numbers outside of the range, special values,
    /// and where an argument or the result is denormal or as large as can be.
    pub fn error(&self, x: f32, y: f32, found: f32) -> Option<f64> {
        let (wide_x, wide_y) = (f64::from(x), f64::from(y));
        let exact = (self.exact)(wide_x, wide_y);
        let size = exact.abs();
        // 2⁻¹²⁶ and half of the largest number: what is beside the ends may be rounded across.
        let is_ordinary = x.is_normal() && (2.0f64.powi(-125)..=2.0f64.powi(126)).contains(&size);
        if !(self.is_bounded)(wide_x, wide_y) || !is_ordinary {
            return None;
        }
        let apart = (f64::from(found) - exact).abs();
        let unit = if (self.is_absolute)(wide_x) { 1.0 } else { (size.log2().floor() - 23.0).exp2() };
        // A result that is NaN is as far off as can be.
        Some(if apart.is_nan() { f64::INFINITY } else { apart / unit })
    }
}
