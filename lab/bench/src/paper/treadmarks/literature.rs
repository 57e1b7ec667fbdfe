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

/// TR7: of these, seconds of idle time.
pub(super) const WATER_IDLE: [f64; 3] = [3.9, 5.0, 14.4];

/// TR3, of Water: bytes of a message.
pub(super) const WATER_BYTES: f64 = 356.0;

/// TR4: the largest part of TreadMarks' own code, of Water, in percent; the kernel's part is at
/// least so many times TreadMarks'.
pub(super) const MOST_TREADMARKS: f64 = 2.9;
pub(super) const KERNEL_TO_TREADMARKS: f64 = 3.0;

/// TR5: the least part of communication in the kernel's time, in percent.
pub(super) const COMMUNICATION: f64 = 80.0;
