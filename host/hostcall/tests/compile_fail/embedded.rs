fn main() {
    let _ = hostcall::embedded_images!();
}
