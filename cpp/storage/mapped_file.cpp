// The file of the rows: making it, opening it, its locks, and bringing it to disk.
#include "storage/mapped_layout.hpp"
#include "support/error.hpp"

#if !defined(__linux__)

namespace replaylab {

// Elsewhere there is no lock that belongs to an open file and is freed by the kernel.
MappedRows::MappedRows(const MappedConfig&) {
    fail("StorageError",
         "MemoryMap and SharedMemory need Linux; leave `storage` out to keep the rows in memory");
}
MappedRows::~MappedRows() = default;
std::string MappedRows::declaration_of(const std::string&) { return {}; }
void MappedRows::ask_for(const char*, std::int64_t) {}
void MappedRows::open_again() {}
bool MappedRows::lock(std::int64_t) const { return false; }
void MappedRows::unlock(std::int64_t) const {}
void MappedRows::check_length() const {}
void MappedRows::mark_unflushed() {}
void MappedRows::flush() {}
void MappedRows::close() {}
std::uint64_t MappedRows::forks() { return 0; }

}  // namespace replaylab

#else

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <thread>

namespace replaylab {

namespace {

constexpr char kMagic[8] = {'R', 'L', 'A', 'B', 'R', 'O', 'W', 'S'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kByteOrder = 0x01020304;

std::int64_t up_to(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

std::atomic<std::uint64_t> fork_count{0};
const int counting_forks = pthread_atfork(nullptr, nullptr, [] { ++fork_count; });

// Names this run of the machine.
std::string boot_id() {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    id.resize(36, '-');
    return id;
}

struct flock one_byte(std::int64_t byte, short kind) {
    struct flock lock{};
    lock.l_type = kind;
    lock.l_whence = SEEK_SET;
    lock.l_start = byte;
    lock.l_len = 1;
    return lock;
}

std::string random_identity() {
    std::random_device device;
    std::string text;
    for (int k = 0; k < 32; ++k) text += "0123456789abcdef"[device() & 15];
    return text;
}

}  // namespace

std::uint64_t MappedRows::forks() { return fork_count.load(std::memory_order_relaxed); }

void MappedRows::measure(std::int64_t replicas, std::int64_t declaration_bytes) {
    if (zero_row() >= std::int64_t{std::numeric_limits<std::uint32_t>::max()})
        fail("StorageError", "capacity + headroom + writers must be below 2^32, but is ", zero_row(),
             "; use a smaller capacity");
    if (streams() >= std::int64_t{kEnds})
        fail("StorageError", "writers × num_envs must be below 2^31, but is ", streams(),
             "; use fewer writers");
    if (declaration_bytes > kLongestDeclaration)
        fail("StorageError", "the fields take ", declaration_bytes, " bytes to write down, but at most ",
             kLongestDeclaration, " fit; declare fewer fields");
    if (stride_ > (std::int64_t{1} << 60) / (zero_row() + 1))
        fail("StorageError", "`", path_, "` would be larger than any file can be; use a smaller capacity");
    first_section_ = kPage + up_to(declaration_bytes, kPage);
    const std::int64_t before_rows =
        2 * kLine + writers_ * kLine + up_to(8 * log_, kLine) + 16 * (zero_row() + 1) + 8 * kLine;
    section_bytes_ = up_to(before_rows, kPage) + up_to(stride_ * (zero_row() + 1), kPage);
    if (section_bytes_ > (std::int64_t{1} << 61) / replicas)
        fail("StorageError", "`", path_, "` would be larger than any file can be; use a smaller capacity");
    file_bytes_ = first_section_ + replicas * section_bytes_;
    most_ = log_ * std::min(kLaps, (std::int64_t{1} << 62) / log_);
}

void MappedRows::map() {
    void* mapped =
        mmap(nullptr, static_cast<std::size_t>(file_bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (mapped == MAP_FAILED)
        fail("StorageError", "`", path_, "` of ", file_bytes_,
             " bytes cannot be mapped: ", std::strerror(errno));
    base_ = static_cast<char*>(mapped);
    header_ = reinterpret_cast<Header*>(base_);
    exceeds_memory_ = file_bytes_ > memory_ / 2;  // the rest of the machine needs some, too
    // Neighbours of a row that was drawn are not drawn next: reading them as well would fill the memory.
    madvise(base_, static_cast<std::size_t>(file_bytes_), exceeds_memory_ ? MADV_RANDOM : MADV_HUGEPAGE);
}

void MappedRows::place_sections() {
    char* at = base_ + first_section_;
    sections_.resize(static_cast<std::size_t>((file_bytes_ - first_section_) / section_bytes_));
    for (Section& one : sections_) {
        char* next = at;
        const auto take = [&](std::int64_t bytes) {
            char* taken = next;
            next += up_to(bytes, kLine);
            return taken;
        };
        one.head = reinterpret_cast<Number*>(take(2 * kLine));  // alone on its pair of lines
        one.records = reinterpret_cast<Record*>(take(writers_ * kLine));
        one.log = reinterpret_cast<Word*>(take(8 * log_));
        one.marks = reinterpret_cast<Mark*>(take(16 * (zero_row() + 1)));
        one.rows = at + section_bytes_ - up_to(stride_ * (zero_row() + 1), kPage);
        at += section_bytes_;
    }
}

// False where another process has it.
bool MappedRows::lock(std::int64_t byte) const {
    struct flock wanted = one_byte(byte, F_WRLCK);
    while (fcntl(file_, F_OFD_SETLK, &wanted) != 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EACCES) return false;
        fail("StorageError", "`", path_, "` cannot be locked: ", std::strerror(errno),
             "; put it on a local file system");
    }
    return true;
}

void MappedRows::unlock(std::int64_t byte) const {
    struct flock given = one_byte(byte, F_UNLCK);
    fcntl(file_, F_OFD_SETLK, &given);
}

MappedRows::MappedRows(const MappedConfig& config)
    : path_(config.path),
      capacity_(config.capacity),
      log_(config.capacity + config.headroom),
      writers_(config.writers),
      num_envs_(config.num_envs),
      stride_(config.stride),
      memory_(config.memory),
      born_(forks()) {
    file_ = open(path_.c_str(), O_RDWR | O_CLOEXEC | (config.may_create ? O_CREAT : 0), 0666);
    if (file_ < 0)
        fail("StorageError", "`", path_, "` cannot be opened: ", std::strerror(errno),
             errno == ENOENT && !config.may_create ? "; the process that makes it must come first" : "");
    try {
        struct stat about{};
        if (fstat(file_, &about) != 0 || !S_ISREG(about.st_mode))
            fail("StorageError", "`", path_, "` is no regular file");
        while (!lock(kOpening)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            config.interrupted();
        }
        fstat(file_, &about);
        open_existing(config, about.st_size);
    } catch (...) {
        close();
        throw;
    }
    unlock(kOpening);
}

// Opens what is there, or makes it where nothing is, or something whose maker was killed.
void MappedRows::open_existing(const MappedConfig& config, std::int64_t size) {
    Header header{};
    const bool ours = pread(file_, static_cast<void*>(&header), sizeof header, 0) >= 0 &&
                      std::memcmp(header.magic, kMagic, sizeof kMagic) == 0;
    if (size != 0 && !ours)
        fail("StorageError", "`", path_, "` is not a file of replaylab rows; use another name");
    if (size == 0 || header.ready.load() == 0) {
        if (!config.may_create)
            fail("StorageError", "`", path_, "` is empty; the process that makes it must come first");
        return make(config);
    }
    if (!config.may_open) fail("StorageError", "`", path_, "` is there already; remove it first, or open it");
    if (header.version != kVersion || header.byte_order != kByteOrder)
        fail("StorageError", "`", path_, "` is of version ", header.version,
             ", or from a machine of another byte order; this release reads version ", kVersion);
    capacity_ = header.capacity;
    writers_ = header.writers;
    num_envs_ = header.num_envs;
    stride_ = header.stride;
    // Each alone so small that nothing made of them overflows.
    const auto counts = [](std::int64_t n, std::int64_t most) { return n > 0 && n <= most; };
    constexpr std::int64_t kRows = std::numeric_limits<std::uint32_t>::max();
    const bool sane = counts(header.capacity, kRows) && counts(header.headroom, kRows) &&
                      counts(header.writers, kOpening - 1) && counts(header.replicas, kRows) &&
                      counts(header.num_envs, kRows) && counts(header.stride, size) &&
                      counts(header.declaration_bytes, kLongestDeclaration);
    log_ = sane ? header.capacity + header.headroom : 0;
    if (sane && zero_row() < kRows && streams() < std::int64_t{kEnds})
        measure(header.replicas, header.declaration_bytes);
    if (first_section_ == 0 || first_section_ != header.first_section ||
        section_bytes_ != header.section_bytes || file_bytes_ != header.file_bytes || file_bytes_ != size)
        fail("StorageError", "`", path_, "` is damaged: its header or its length is not as written");
    std::string declaration(static_cast<std::size_t>(header.declaration_bytes), '\0');
    if (pread(file_, &declaration[0], declaration.size(), kPage) != header.declaration_bytes ||
        declaration != config.declaration || config.capacity != capacity_ || config.stride != stride_ ||
        config.num_envs != num_envs_ || config.replicas != header.replicas)
        fail("StorageError", "`", path_, "` holds rows declared otherwise: ", declaration, " and not ",
             config.declaration);
    map();
    place_sections();
    identity_.assign(header.identity, sizeof header.identity);
    if (identity_.find_first_not_of("0123456789abcdef") != std::string::npos)
        damaged("its identity is not as written");
    if (header_->unflushed.load() == 0 || boot_id().compare(0, 36, header_->boot, 36) == 0) return;
    if (!consistent()) fail("StorageError", "`", path_, "` was damaged when the machine stopped; remove it");
    mark_unflushed();
    was_unflushed_ = true;
}

void MappedRows::make(const MappedConfig& config) {
    measure(config.replicas, static_cast<std::int64_t>(config.declaration.size()));
    const bool emptied = ftruncate(file_, 0) == 0;  // what a maker that was killed had taken is free again
    struct statvfs disk{};
    fstatvfs(file_, &disk);
    const auto room = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
    // Known for ours from the first moment on, should this process be killed on the way. Space promised now
    // is not missing later, when a write to it would kill the process.
    bool made = emptied && file_bytes_ <= room && pwrite(file_, kMagic, sizeof kMagic, 0) == sizeof kMagic &&
                ftruncate(file_, file_bytes_) == 0;
    int why = made ? 0 : file_bytes_ <= room ? errno : ENOSPC;
    constexpr std::int64_t kPiece = std::int64_t{1} << 26;  // between two of them Ctrl-C is heard
    for (std::int64_t at = 0; why == 0 && at < file_bytes_; config.interrupted()) {
        why = posix_fallocate(file_, at, std::min(kPiece, file_bytes_ - at));
        if (why == EINTR)
            why = 0;
        else
            at += kPiece;
    }
    if (why != 0) {
        static_cast<void>(ftruncate(file_, 0) == 0);
        if (why == EOPNOTSUPP || why == EINVAL)
            fail("StorageError", "`", path_, "` needs ", file_bytes_,
                 " bytes, which its file system cannot set aside (", std::strerror(why),
                 "): should the disk fill later, a write to it would end the process; put it on another");
        fail("StorageError", "`", path_, "` needs ", file_bytes_, " bytes, but its file system has ", room,
             " free (", std::strerror(why), "); make room, or use a smaller capacity");
    }
    map();
    std::memcpy(header_->magic, kMagic, sizeof kMagic);
    header_->version = kVersion;
    header_->byte_order = kByteOrder;
    header_->capacity = capacity_;
    header_->headroom = log_ - capacity_;
    header_->writers = writers_;
    header_->replicas = config.replicas;
    header_->num_envs = num_envs_;
    header_->stride = stride_;
    header_->declaration_bytes = static_cast<std::int64_t>(config.declaration.size());
    header_->first_section = first_section_;
    header_->section_bytes = section_bytes_;
    header_->file_bytes = file_bytes_;
    identity_ = random_identity();
    std::memcpy(header_->identity, identity_.data(), sizeof header_->identity);
    std::memcpy(base_ + kPage, config.declaration.data(), config.declaration.size());
    place_sections();
    for (const Section& one : sections_) {
        for (std::int64_t n = 0; n < log_; ++n) one.log[n].store(word_of(0, n), std::memory_order_relaxed);
        for (std::int64_t w = 0; w < writers_; ++w) {
            one.records[w].row.store(log_ + w);
            one.records[w].id.store(kNone);
        }
    }
    header_->ready.store(1);
}

std::string MappedRows::declaration_of(const std::string& path) {
    const int file =
        open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // not waiting for a pipe's other end
    if (file < 0) return {};
    Header header{};
    std::string text;
    const bool whole = pread(file, static_cast<void*>(&header), sizeof header, 0) == sizeof header;
    if (whole && std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.ready.load() != 0 &&
        header.declaration_bytes > 0 && header.declaration_bytes <= kLongestDeclaration) {
        text.resize(static_cast<std::size_t>(header.declaration_bytes));
        if (pread(file, &text[0], text.size(), kPage) != header.declaration_bytes) text.clear();
    }
    ::close(file);
    return text;
}

void MappedRows::check_length() const {
    struct stat about{};
    if (fstat(file_, &about) != 0 || about.st_size < file_bytes_) damaged("another process has cut it short");
}

MappedRows::~MappedRows() { close(); }

void MappedRows::ask_for(const char* row, std::int64_t bytes) {
    const auto start = reinterpret_cast<std::uintptr_t>(row), page = start / kPage * kPage;
    madvise(reinterpret_cast<void*>(page), start + static_cast<std::uintptr_t>(bytes) - page, MADV_WILLNEED);
}

void MappedRows::close() {
    if (base_ != nullptr) munmap(base_, static_cast<std::size_t>(file_bytes_));
    if (file_ >= 0) ::close(file_);
    base_ = nullptr;
    file_ = -1;
}

// A forked child shares its parent's locks: it needs its own open file.
void MappedRows::open_again() {
    const int own = open(("/proc/self/fd/" + std::to_string(file_)).c_str(), O_RDWR | O_CLOEXEC);
    if (own < 0) fail("StorageError", "`", path_, "` cannot be opened again: ", std::strerror(errno));
    ::close(file_);
    file_ = own;
    born_ = forks();
}

void MappedRows::sync(std::int64_t bytes) const {
    if (msync(base_, static_cast<std::size_t>(bytes), MS_SYNC) != 0)
        fail("StorageError", "`", path_, "` cannot be flushed: ", std::strerror(errno));
}

// On disk before the first step is that it speaks of.
void MappedRows::mark_unflushed() {
    const std::string boot = boot_id();
    std::memcpy(header_->boot, boot.data(), 36);
    header_->unflushed.store(1);
    sync(kPage);
}

void MappedRows::flush() {
    check_length();
    if (header_->unflushed.load() == 0) return;
    std::vector<std::int64_t> heads;
    for (const Section& one : sections_) heads.push_back(one.head->load());
    sync(file_bytes_);
    // A writer looks at `unflushed` after it has moved the head: either it sees the 0 and undoes it, or its
    // step is seen here.
    header_->unflushed.store(0);
    for (std::size_t r = 0; r < heads.size(); ++r)
        if (sections_[r].head->load() != heads[r]) header_->unflushed.store(1);
    sync(kPage);
}

}  // namespace replaylab

#endif
