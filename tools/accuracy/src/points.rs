//! The points at which functions are compared.

use crate::Real;
use conformance::mix;

/// Where a function's arguments lie. What it gives for numbers outside is compared too, at fewer points.
#[derive(Clone, Copy, Debug)]
pub enum Where {
    /// Evenly between two numbers.
    Between(f64, f64),
    /// Of either sign, with logarithms evenly between those of two numbers.
    Sizes(f64, f64),
    /// Beside a number.
    Beside(f64),
    /// Beside multiples of π/2, of all sizes.
    QuarterTurns,
    /// Beside integers between two numbers.
    Integers(f64, f64),
    /// Two arguments: a positive number, and an exponent that keeps the power in the range or takes it a little out of it.
    Powers,
}

/// Numbers that every function is compared at.
const SPECIAL: [f64; 16] =
    [0.0, 1.0, 0.5, 2.0, 3.0, 1.5, 0.75, 10.0, 1e-5, 100.0, 1e10, 1e30, 1e-30, 1e300, 1e-300, f64::INFINITY];

/// The special values of a type, of both signs.
pub fn special<T: Real>() -> Vec<T> {
    let one = T::nearest(1.0);
    let smallest = T::of_bits(1);
    let smallest_normal = T::nearest(2f64.powi(T::MIN_EXPONENT + T::DIGITS - 1));
    let largest = T::nearest(2f64.powi(T::MAX_EXPONENT - 1)).step(1 << (T::DIGITS - 1));
    let beside = [
        one.step(1),
        one.step(-1),
        smallest,
        smallest.step(1),
        smallest_normal,
        smallest_normal.step(-1),
        largest,
    ];
    let positive: Vec<T> = SPECIAL.map(T::nearest).into_iter().chain(beside).collect();
    let negative = positive.iter().map(|x| x.copysign(T::nearest(-1.0)));
    negative.chain(positive.iter().copied()).chain([T::nearest(f64::NAN)]).collect()
}

/// Random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// A number from 0 to 1.
    fn part(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.part()
    }

    fn sign(&mut self) -> f64 {
        if self.bits() & 1 == 0 { 1.0 } else { -1.0 }
    }

    /// A number beside this one: some units of the last place away, as often few as many.
    fn beside<T: Real>(&mut self, number: f64) -> T {
        let reach = self.bits() % (T::DIGITS as u64 - 2);
        let steps = (self.bits() % (2 << reach)) as i64 - (1 << reach);
        T::nearest(number).step(steps)
    }

    fn point<T: Real>(&mut self, place: Where) -> [T; 2] {
        let other = T::nearest(self.sign() * self.between(-30.0, 30.0).exp2());
        let x = match place {
            Where::Between(from, to) => T::nearest(self.between(from, to)),
            Where::Sizes(from, to) => {
                let sign = self.sign();
                T::nearest(sign * self.between(from.log2(), to.log2()).exp2())
            }
            Where::Beside(number) => self.beside(number),
            Where::QuarterTurns => {
                let bits = self.bits() % T::MAX_EXPONENT as u64;
                let most = 2f64.powi(bits.min(60) as i32);
                let turns = (self.part() * most).round() * 2f64.powi(bits as i32 - bits.min(60) as i32);
                let sign = self.sign();
                self.beside(sign * (turns * std::f64::consts::FRAC_PI_2).min(1e300))
            }
            Where::Integers(from, to) => {
                let integer = self.between(from, to).round();
                self.beside(integer)
            }
            Where::Powers => {
                let size = self.bits() % T::MAX_EXPONENT as u64;
                let exponent = self.between(-1.0, 1.0)
                    * 2f64.powi(-((size % 24) as i32))
                    * f64::from(T::MAX_EXPONENT - 1);
                let x = T::nearest(exponent.exp2());
                let logarithm = x.wide().log2();
                let most = 1.1 * f64::from(T::MAX_EXPONENT);
                let power = self.between(-most, most);
                return [x, T::nearest(if logarithm == 0.0 { power } else { power / logarithm })];
            }
        };
        [x, other]
    }
}

/// Returns point `i` of a function: first all pairs of special values, then one in eight anywhere, the others where its
/// arguments lie.
pub fn point<T: Real>(i: u64, special: &[T], places: &[Where]) -> [T; 3] {
    let specials = special.len() as u64;
    let mut random = Random(mix(i).wrapping_mul(31));
    let third = special[(random.bits() % specials) as usize];
    if i < specials * specials {
        return [special[(i % specials) as usize], special[(i / specials) as usize], third];
    }
    if i.is_multiple_of(8) || places.is_empty() {
        return [0; 3].map(|_| T::of_bits(random.bits()));
    }
    let place = places[(random.bits() % places.len() as u64) as usize];
    let [x, y] = random.point::<T>(place);
    let scale = random.between(-2.0, 2.0);
    // For `mul_add`: often about as large as the product, so that digits cancel.
    let z = T::nearest(
        (-x.wide() * y.wide() * (1.0 + scale * 2f64.powi(-((random.bits() % 60) as i32))))
            .clamp(-1e300, 1e300),
    );
    [x, y, z]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_values_have_both_ends() {
        let values = special::<f32>();
        for value in
            [f32::MAX, f32::MIN, f32::MIN_POSITIVE, f32::INFINITY, -0.0, 1.0f32.next_up(), -f32::from_bits(1)]
        {
            assert!(values.iter().any(|x| x.to_bits() == value.to_bits()), "{value:e}");
        }
        assert!(special::<f64>().contains(&f64::MAX) && special::<f64>().iter().any(|x| x.is_nan()));
    }

    #[test]
    fn points_lie_where_they_should() {
        let mut random = Random(1);
        for _ in 0..1000 {
            let [x, _] = random.point::<f32>(Where::Between(-2.0, 3.0));
            assert!((-2.0..=3.0).contains(&x));
            let [x, _] = random.point::<f64>(Where::QuarterTurns);
            assert!(x.is_finite());
            let [x, y] = random.point::<f64>(Where::Powers);
            assert!((x.log2() * y).abs() < 1.2 * 1024.0, "{x:e} {y:e}");
        }
    }
}
