// Written for this project: collections of the standard library, a closure, a trait.
use std::collections::HashMap;
use std::thread;

struct Cart {
    items: Vec<String>,
}

#[inline(never)]
fn keep_cart(all: &mut HashMap<u64, Cart>, id: u64) {
    // the leak
    let items = (0..10).map(|n| format!("item {} of cart {}", n, id)).collect();
    all.insert(id, Cart { items });
}

trait Price {
    fn price(&self) -> usize;
}

impl Price for str {
    #[inline(never)]
    fn price(&self) -> usize {
        // the churn
        self.to_uppercase().len() + self.to_string().len()
    }
}

#[inline(never)]
fn invoice(lines: usize) -> usize {
    // the peak
    let all: Vec<Vec<u64>> = (0..lines).map(|n| vec![n as u64; 4096]).collect();
    all.iter().map(|line| line.len()).sum()
}

fn main() {
    let mut carts = HashMap::new();
    for id in 0..2000 {
        keep_cart(&mut carts, id);
    }
    let sum: usize = thread::spawn(|| (0..20000).map(|_| "a line of text".price()).sum()).join().unwrap();
    println!("{} {} {}", sum, invoice(1000), carts.values().map(|cart| cart.items.len()).sum::<usize>());
    std::mem::forget(carts);
}
