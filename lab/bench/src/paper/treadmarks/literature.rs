//! Figures of the paper that are in its text: 8 DECstation-5000/240 at 40 MHz, on
//! a 100 Mbit/s ATM network unless it says otherwise.

/// TR1, in microseconds.
pub(super) const ROUND_TRIP: f64 = 500.0;
pub(super) const LOCK_FROM_MANAGER: f64 = 827.0;
pub(super) const LOCK_FROM_THIRD: f64 = 1149.0;
pub(super) const BARRIER_8: f64 = 2186.0;
pub(super) const PAGE_FAULT: f64 = 2792.0;

/// TR3, of Water on 8 processors: locks, messages and KB a second.
pub(super) const WATER_RATES: (f64, f64, f64) = (582.0, 2238.0, 798.0);

/// TR7: seconds of Water on 8 processors by AAL3/4, by UDP on ATM, on Ethernet.
pub(super) const WATER_SECONDS: [(&str, f64); 3] = [
    ("AAL3/4 on ATM", 15.0),
    ("UDP on ATM", 17.5),
    ("UDP on Ethernet", 27.5),
];
