#include "mapped_rows.hpp"

#include "error.hpp"

#if defined(REPLAYLAB_PROBE)
void between_stores();  // a test's: kills this process, or lets it wait, between any two stores
#else
inline void between_stores() {}
#endif

#if !defined(__linux__)

namespace replaylab {

// Elsewhere there is no lock that belongs to an open file and is freed by the kernel.
MappedRows::MappedRows(const MappedConfig&) {
    fail("StorageError",
         "MemoryMap and SharedMemory need Linux; leave `storage` out to keep the rows in memory");
}
MappedRows::~MappedRows() = default;
std::string MappedRows::declaration_of(const std::string&) { return {}; }
bool MappedRows::find(std::int64_t, std::int64_t, Step&) const { return false; }
char* MappedRows::blank(std::int64_t) { return nullptr; }
std::int64_t MappedRows::publish(std::int64_t, std::int64_t, bool) { return -1; }
void MappedRows::cut(std::int64_t, std::int64_t) {}
void MappedRows::flush() {}
void MappedRows::close() {}
void MappedRows::ask_for(const char*, std::int64_t) {}

}  // namespace replaylab

#else

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>

namespace replaylab {

namespace {

constexpr char kMagic[8] = {'R', 'L', 'A', 'B', 'R', 'O', 'W', 'S'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kByteOrder = 0x01020304;
constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kOpening = kPage - 1;  // the byte locked while a file is opened; places are below it
constexpr std::int64_t kNone = -1;
constexpr std::int64_t kAhead = 64;  // rows to be overwritten that are read from disk while others are filled
constexpr std::uint32_t kEnds = 1u << 31;

std::int64_t up_to(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

// A word of the log: the lap in which its id came, from 1 on, and the row. Lap 0: no step yet.
std::uint64_t word_of(std::uint64_t lap, std::int64_t row) {
    return lap << 32 | static_cast<std::uint64_t>(row);
}
std::uint64_t lap_of(std::uint64_t word) { return word >> 32; }
std::int64_t row_of(std::uint64_t word) { return static_cast<std::int64_t>(word & 0xffffffffu); }

// A row's claim: its writer means it to be step id. Once that step has left the log: it was.
std::int64_t claimed(std::int64_t id) { return -1 - id; }
std::int64_t was(std::int64_t id) { return 1 + id; }

// Counts forks, so that a child process sees that its parent's place is not its own.
std::atomic<std::uint64_t> forks{0};
const int counting_forks = pthread_atfork(nullptr, nullptr, [] { ++forks; });

// Names this run of the machine.
std::string boot_id() {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    id.resize(36, '-');
    return id;
}

std::string random_identity() {
    std::random_device device;
    std::string text;
    for (int k = 0; k < 32; ++k) text += "0123456789abcdef"[device() & 15];
    return text;
}

}  // namespace

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                  std::atomic<std::int64_t>::is_always_lock_free,
              "words in shared memory must be plain words");

// All numbers are little-endian. docs/storage.md describes the file.
struct MappedRows::Header {
    char magic[8];
    std::uint32_t version;
    std::uint32_t byte_order;
    std::int64_t capacity, headroom, writers, replicas, num_envs, stride;
    std::int64_t declaration_bytes;  // of the text after this page
    std::int64_t first_section, section_bytes, file_bytes;
    char identity[32];
    char boot[40];     // the machine's run in which steps were published that no flush followed
    Number ready;      // 1 once all of it was made
    Number unflushed;  // 1 while there are such steps
};

struct MappedRows::Mark {
    Number claim;  // see claimed() and was()
    std::atomic<std::uint32_t> stream, step;
};

struct MappedRows::Record {
    Number row;      // owned by this place
    Number id, old;  // while it publishes: the id its row is to get, and the row that it is to get for it
    char unused[kLine - 3 * 8];
};

void MappedRows::measure(std::int64_t replicas, std::int64_t declaration_bytes) {
    if (zero_row() >= std::int64_t{std::numeric_limits<std::uint32_t>::max()})
        fail("StorageError", "capacity + headroom + writers must be below 2^32, but is ", zero_row(),
             "; use a smaller capacity");
    if (stride_ > (std::int64_t{1} << 60) / (zero_row() + 1) / replicas)
        fail("StorageError", "`", path_, "` would be larger than any file can be; use a smaller capacity");
    first_section_ = kPage + up_to(declaration_bytes, kPage);
    const std::int64_t before_rows =
        2 * kLine + writers_ * kLine + up_to(8 * log_, kLine) + 16 * (zero_row() + 1) + 8 * kLine;
    section_bytes_ = up_to(before_rows, kPage) + up_to(stride_ * (zero_row() + 1), kPage);
    file_bytes_ = first_section_ + replicas * section_bytes_;
    sections_.resize(static_cast<std::size_t>(replicas));
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

bool MappedRows::lock(std::int64_t byte, bool wait) const {
    struct flock wanted{};
    wanted.l_type = F_WRLCK;
    wanted.l_whence = SEEK_SET;
    wanted.l_start = byte;
    wanted.l_len = 1;
    while (fcntl(file_, wait ? F_OFD_SETLKW : F_OFD_SETLK, &wanted) != 0) {
        if (errno == EINTR) continue;
        if (!wait && (errno == EAGAIN || errno == EACCES)) return false;
        fail("StorageError", "`", path_, "` cannot be locked: ", std::strerror(errno),
             "; put it on a local file system");
    }
    return true;
}

void MappedRows::unlock(std::int64_t byte) const {
    struct flock wanted{};
    wanted.l_type = F_UNLCK;
    wanted.l_whence = SEEK_SET;
    wanted.l_start = byte;
    wanted.l_len = 1;
    fcntl(file_, F_OFD_SETLK, &wanted);
}

MappedRows::MappedRows(const MappedConfig& config)
    : path_(config.path),
      capacity_(config.capacity),
      log_(config.capacity + config.headroom),
      writers_(config.writers),
      num_envs_(config.num_envs),
      stride_(config.stride),
      memory_(config.memory),
      born_(forks.load()) {
    file_ = open(path_.c_str(), O_RDWR | O_CLOEXEC | (config.may_create ? O_CREAT : 0), 0666);
    if (file_ < 0)
        fail("StorageError", "`", path_, "` cannot be opened: ", std::strerror(errno),
             errno == ENOENT && !config.may_create ? "; the process that makes it must come first" : "");
    try {
        lock(kOpening, true);
        struct stat about{};
        if (fstat(file_, &about) != 0 || !S_ISREG(about.st_mode))
            fail("StorageError", "`", path_, "` is no regular file");
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
        fail("StorageError", "`", path_, "` is no file of replaylab rows; use another name");
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
    log_ = header.capacity + header.headroom;
    writers_ = header.writers;
    num_envs_ = header.num_envs;
    stride_ = header.stride;
    const bool sane = capacity_ > 0 && header.headroom > 0 && writers_ > 0 && writers_ < kOpening &&
                      header.replicas > 0 && num_envs_ > 0 && stride_ > 0 && header.declaration_bytes >= 0 &&
                      log_ < std::numeric_limits<std::uint32_t>::max();
    if (sane) measure(header.replicas, header.declaration_bytes);
    if (!sane || first_section_ != header.first_section || section_bytes_ != header.section_bytes ||
        file_bytes_ != header.file_bytes || file_bytes_ != size)
        fail("StorageError", "`", path_, "` is damaged: its header or its length is not as written");
    std::string declaration(static_cast<std::size_t>(header.declaration_bytes), '\0');
    if (pread(file_, &declaration[0], declaration.size(), kPage) != header.declaration_bytes ||
        declaration != config.declaration || config.capacity != capacity_ || config.stride != stride_ ||
        config.num_envs != num_envs_ || config.replicas != header.replicas)
        fail("StorageError", "`", path_, "` holds rows declared otherwise: ", declaration, " and not ",
             config.declaration);
    map();
    place_sections();
    identity_.assign(header_->identity, sizeof header_->identity);
    if (header_->unflushed.load() == 0 || boot_id().compare(0, 36, header_->boot, 36) == 0) return;
    if (!config.after_crash)
        fail("StorageError", "`", path_,
             "` had steps that no flush() followed when the machine last stopped; if it was switched off in "
             "an "
             "orderly way nothing is lost: pass MemoryMap(..., after_crash=True); after a power cut some "
             "rows may be "
             "damaged: then remove the file");
    if (!consistent()) fail("StorageError", "`", path_, "` was damaged when the machine stopped; remove it");
    mark_unflushed();
}

// Whether the log and the places name every row exactly once, and the log's laps fit its head.
bool MappedRows::consistent() const {
    for (const Section& one : sections_) {
        std::vector<bool> named(static_cast<std::size_t>(zero_row()), false);
        const auto name = [&](std::int64_t row) {
            if (row < 0 || row >= zero_row() || named[static_cast<std::size_t>(row)]) return false;
            named[static_cast<std::size_t>(row)] = true;
            return true;
        };
        const std::int64_t head = one.head->load();
        for (std::int64_t n = 0; n < log_; ++n) {
            const std::uint64_t word = one.log[n].load();
            const auto lap = static_cast<std::uint64_t>(head / log_ + (n < head % log_));
            const bool ahead =
                n == head % log_ && lap_of(word) == lap + 1;  // taken, and the head not yet moved
            if ((lap_of(word) != lap && !ahead) || !name(row_of(word))) return false;
        }
        for (std::int64_t w = 0; w < writers_; ++w)
            if (!name(settle(one, one.records[w]))) return false;
    }
    return true;
}

void MappedRows::make(const MappedConfig& config) {
    measure(config.replicas, static_cast<std::int64_t>(config.declaration.size()));
    struct statvfs disk{};
    fstatvfs(file_, &disk);
    const auto room = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
    // Known for ours from the first moment on, should this process be killed on the way. Space promised now
    // is not missing later, when a write to it would kill the process.
    bool made = file_bytes_ <= room && ftruncate(file_, 0) == 0 &&
                pwrite(file_, kMagic, sizeof kMagic, 0) == sizeof kMagic &&
                ftruncate(file_, file_bytes_) == 0;
    made = made && (fallocate(file_, 0, 0, file_bytes_) == 0 || errno == EOPNOTSUPP);
    if (!made) {
        const int why = file_bytes_ <= room ? errno : ENOSPC;
        static_cast<void>(ftruncate(file_, 0) == 0);
        fail("StorageError", "`", path_, "` needs ", file_bytes_, " bytes, but its file system has ", room,
             " free (", std::strerror(why), "); make room, or use a smaller capacity");
    }
    map();
    Header* header = header_;
    std::memcpy(header->magic, kMagic, sizeof kMagic);
    header->version = kVersion;
    header->byte_order = kByteOrder;
    header->capacity = capacity_;
    header->headroom = log_ - capacity_;
    header->writers = writers_;
    header->replicas = config.replicas;
    header->num_envs = num_envs_;
    header->stride = stride_;
    header->declaration_bytes = static_cast<std::int64_t>(config.declaration.size());
    header->first_section = first_section_;
    header->section_bytes = section_bytes_;
    header->file_bytes = file_bytes_;
    identity_ = random_identity();
    std::memcpy(header->identity, identity_.data(), sizeof header->identity);
    std::memcpy(base_ + kPage, config.declaration.data(), config.declaration.size());
    place_sections();
    for (const Section& one : sections_) {
        for (std::int64_t n = 0; n < log_; ++n) one.log[n].store(word_of(0, n), std::memory_order_relaxed);
        for (std::int64_t w = 0; w < writers_; ++w) {
            one.records[w].row.store(log_ + w);
            one.records[w].id.store(kNone);
        }
    }
    header->ready.store(1);
}

std::string MappedRows::declaration_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    Header header{};
    if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return {};
    const bool ours = std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.ready.load() != 0;
    if (!ours || header.declaration_bytes < 0 || header.declaration_bytes > kPage * kPage) return {};
    std::string text(static_cast<std::size_t>(header.declaration_bytes), '\0');
    file.seekg(kPage);
    return file.read(&text[0], header.declaration_bytes) ? text : std::string();
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

bool MappedRows::find(std::int64_t replica, std::int64_t id, Step& step) const {
    const Section& one = section(replica);
    const auto lap = static_cast<std::uint64_t>(id / log_ + 1);
    const std::uint64_t word = one.log[id % log_].load(std::memory_order_acquire);
    if (lap_of(word) != lap) return false;
    step.row = row_of(word);
    if (step.row >= zero_row())
        fail("StorageError", "`", path_, "` is damaged: its log names a row it has not");
    const std::uint32_t stream = one.marks[step.row].stream.load(std::memory_order_relaxed);
    step.step = one.marks[step.row].step.load(std::memory_order_relaxed);
    if (!whole_since(replica, id)) return false;
    step.ends = (stream & kEnds) != 0;
    step.stream = stream & ~kEnds;
    if (step.stream >= streams()) fail("StorageError", "`", path_, "` is damaged: a step of no writer's");
    return true;
}

char* MappedRows::blank(std::int64_t replica) {
    if (place_ < 0 || born_ != forks.load(std::memory_order_relaxed)) take_place();
    return section(replica).rows + blanks_[static_cast<std::size_t>(replica)] * stride_;
}

void MappedRows::cut(std::int64_t replica, std::int64_t env) {
    if (place_ >= 0) steps_[static_cast<std::size_t>(replica * num_envs_ + env)] = 0;
}

std::int64_t MappedRows::publish(std::int64_t replica, std::int64_t env, bool ends) {
    const Section& one = section(replica);
    Record& record = one.records[place_];
    std::int64_t& blank = blanks_[static_cast<std::size_t>(replica)];
    std::uint32_t& step = steps_[static_cast<std::size_t>(replica * num_envs_ + env)];
    Mark& mark = one.marks[blank];
    mark.stream.store(static_cast<std::uint32_t>(place_ * num_envs_ + env) | (ends ? kEnds : 0),
                      std::memory_order_relaxed);
    mark.step.store(step, std::memory_order_relaxed);
    if (header_->unflushed.load(std::memory_order_relaxed) == 0) mark_unflushed();
    for (;;) {
        std::int64_t id = one.head->load(std::memory_order_acquire);
        Word& place = one.log[id % log_];
        std::uint64_t word = place.load(std::memory_order_acquire);
        const auto lap = static_cast<std::uint64_t>(id / log_ + 1);
        if (lap_of(word) == lap) {  // id is taken, and its taker has not said so yet
            one.head->compare_exchange_strong(id, id + 1);
            continue;
        }
        if (lap_of(word) != lap - 1) continue;  // the head has moved on since it was read
        const std::int64_t old = row_of(word);
        // Before a step leaves the log its row's mark says that it was there: settle() asks for that.
        std::int64_t claim = claimed(id - log_);
        if (one.marks[old].claim.load(std::memory_order_relaxed) == claim)
            one.marks[old].claim.compare_exchange_strong(claim, was(id - log_));
        // What settle() needs if this process ends before it has said whether the swap succeeded.
        between_stores();
        mark.claim.store(claimed(id), std::memory_order_release);
        between_stores();
        record.old.store(old, std::memory_order_release);
        between_stores();
        record.id.store(id, std::memory_order_release);
        between_stores();
        const bool swapped = place.compare_exchange_strong(word, word_of(lap, blank));
        between_stores();
        if (swapped) {
            std::int64_t head = id;
            one.head->compare_exchange_strong(head, id + 1);
            between_stores();
            record.row.store(old, std::memory_order_release);
        }
        between_stores();
        record.id.store(kNone, std::memory_order_release);
        if (!swapped) continue;
        blank = old;
        if (exceeds_memory_) {
            const std::uint64_t later = one.log[(id + kAhead) % log_].load(std::memory_order_relaxed);
            ask_for(one.rows + row_of(later) * stride_, stride_);
        }
        step = ends || step + 1 == std::numeric_limits<std::uint32_t>::max() ? 0 : step + 1;
        // Whoever sees what is written into the old row now also sees the head past it: see whole_since().
        std::atomic_thread_fence(std::memory_order_release);
        // A flush between the first look and the swap; see flush().
        if (header_->unflushed.load() == 0) mark_unflushed();
        return id;
    }
}

// The row a place owns, after its former holder ended at any point of publish(), or of settle().
std::int64_t MappedRows::settle(const Section& one, Record& record) const {
    std::int64_t row = record.row.load();
    const std::int64_t id = record.id.load(), old = record.old.load();
    if (id != kNone && row != old) {
        const auto lap = static_cast<std::uint64_t>(id / log_ + 1);
        const std::uint64_t word = one.log[id % log_].load();
        bool published = lap_of(word) == lap && row_of(word) == row;
        if (lap_of(word) > lap) published = one.marks[row].claim.load() != claimed(id);
        if (published) {
            std::int64_t head = id;
            one.head->compare_exchange_strong(head, id + 1);
            row = old;
        }
        between_stores();
        record.row.store(row);
        between_stores();
    }
    record.id.store(kNone);
    std::atomic_thread_fence(std::memory_order_release);
    return row;
}

void MappedRows::take_place() {
    const std::uint64_t fork = forks.load();
    if (born_ != fork) {  // a forked child shares its parent's locks: it needs an open file of its own
        const int own = open(("/proc/self/fd/" + std::to_string(file_)).c_str(), O_RDWR | O_CLOEXEC);
        if (own < 0) fail("StorageError", "`", path_, "` cannot be opened again: ", std::strerror(errno));
        ::close(file_);
        file_ = own;
        born_ = fork;
    }
    place_ = -1;
    for (std::int64_t w = 0; w < writers_ && place_ < 0; ++w)
        if (lock(w, false)) place_ = w;
    if (place_ < 0)
        fail("StorageError", "`", path_, "` has places for ", writers_,
             " processes that add at the same time, and all are taken; make it with more `writers`");
    blanks_.clear();
    for (const Section& one : sections_) blanks_.push_back(settle(one, one.records[place_]));
    steps_.assign(sections_.size() * static_cast<std::size_t>(num_envs_), 0);
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
