//! A join of rows on the device with a table that only the host has: lanes look keys up by a service.

use core::sync::atomic::Ordering::Relaxed;
use hostcall_device::atomic::Scope;
use hostcall_device::{Global, Lane, kernel, service, wave};

// ANCHOR: service
/// Customers of a shop, as its database has them.
#[service]
pub trait Customers {
    /// The number of the country where a customer lives; `None`: there is no such customer.
    fn country_of(customer: u64) -> Option<u32>;
}
// ANCHOR_END: service

// ANCHOR: kernel
/// Joins orders with customers, a lane an order. Writes the number of each order that has a customer to `orders` and the
/// customer's country to `countries`, side by side and in any order; their count to `count`; and adds the order's amount to
/// its country's total.
#[kernel]
pub fn join(
    lane: &Lane,
    customers: &[u64],
    amounts: &[u32],
    orders: &[Global<u32>],
    countries: &[Global<u32>],
    count: &Global<u32>,
    totals: &[Global<u64>],
) {
    let i = lane.global_id();
    // One packet for all lanes of the wave that ask.
    let country = customers.get(i).and_then(|customer| Customers::country_of(*customer).unwrap());
    // One addition for all of them, too: each lane's place is behind those before it.
    let found = u32::from(country.is_some());
    let before = lane.wave_scan_exclusive(found, wave::Add);
    let of_wave = lane.wave_reduce(found, wave::Add);
    let first = lane.once_per_wave(|| count.fetch_add(of_wave, Relaxed, Scope::Device));
    if let Some(country) = country {
        let place = (first + before) as usize;
        orders[place].set(i as u32);
        countries[place].set(country);
        totals[country as usize].fetch_add(u64::from(amounts[i]), Relaxed, Scope::Device);
    }
}
// ANCHOR_END: kernel
