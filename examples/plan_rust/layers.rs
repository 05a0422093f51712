// SPDX-License-Identifier: Apache-2.0
use memoir_plan::{plan, Buffer, Options};

fn main() {
    let buffers: Vec<Buffer> = (0..12).map(|i| Buffer::new(i, i + 2, 100 * (i % 3 + 1))).collect();
    let found = plan(&buffers, &Options::default()).expect("a plan");
    for (buffer, offset) in buffers.iter().zip(&found.offsets) {
        println!("{} bytes in {}..{} at {offset}", buffer.size, buffer.lower, buffer.upper);
    }
    println!("arena {}, no plan is below {}", found.arena_size, found.lower_bound);
}
