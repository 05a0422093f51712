// SPDX-License-Identifier: Apache-2.0
fn main() {
    println!("cargo:rerun-if-env-changed=MEMOIR_LIB");
    let folder = std::env::var("MEMOIR_LIB").unwrap_or_default();
    if !folder.is_empty() {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
    println!("cargo:rustc-link-lib=dylib=memoir_plan_c");
}
