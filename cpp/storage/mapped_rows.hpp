// Rows outside this process: in a file on disk or in shared memory, which any number of processes add to and
// read at once, and which outlives them all.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace replaylab {

// How a file of rows is asked for. What an existing file says of itself goes before headroom and writers.
struct MappedConfig {
    std::string path;
    std::string declaration;    // what the rows are, as text; all who open the file must say the same
    std::int64_t capacity = 0;  // C: ids the newest C of which can be drawn
    std::int64_t headroom = 0;  // H: steps that may be added while a reader gathers
    std::int64_t writers = 0;   // W: processes that may add at the same time
    std::int64_t replicas = 1;
    std::int64_t num_envs = 1;
    std::int64_t stride = 0;  // bytes of a row
    std::int64_t memory = 0;  // bytes of the machine's: may all rows be kept in it?
    bool may_create = true;
    bool may_open = true;
    std::function<void()> interrupted = [] {};  // asked now and then while it takes long; throws to give up
};

// The log of a replica is a ring of L = C + H words, and the word of id n, at n mod L, names the row that
// holds step n. A row outside the log belongs to one writer alone. So a writer fills its own row in peace,
// and then publishes it with ONE compare-and-swap: its row goes into the log as id n, and the row that was
// there, of the dropped step n − L, is the writer's next one. Nothing is ever half there: a process killed
// before the swap has added nothing, one killed after it a whole step. Nobody waits for anybody, and ids are
// dense and mean the same step in every process.
//
// A writer's place is a byte of the file locked by the kernel, which frees it when the process ends, however
// it ends. What the place's former holder had begun is in its record, and the next holder settles it.
class MappedRows {
  public:
    // Opens the file, or makes it. Throws StorageError.
    explicit MappedRows(const MappedConfig& config);
    ~MappedRows();
    MappedRows(const MappedRows&) = delete;
    MappedRows& operator=(const MappedRows&) = delete;

    // What a file says its rows are; empty if the file is missing or was not finished.
    static std::string declaration_of(const std::string& path);

    // What the log and its mark say of a published step.
    struct Step {
        std::int64_t row;
        std::int64_t stream;  // of one environment of one writer: writer × num_envs + environment
        std::uint32_t step;   // its place in its episode; 0 also where a new process begins to add
        bool ends;            // its episode
    };

    // The id that the next step published will get.
    std::int64_t next_id(std::int64_t replica) const {
        const std::int64_t head = section(replica).head->load(std::memory_order_acquire);
        if (head < 0 || head > most_) damaged("its head is no step's number");
        return head;
    }

    // Throws if the file is not as long any more as what is mapped of it: reading on would end the process.
    void check_length() const;

    // Looks up step id < next_id; false if its row has gone to a newer one.
    bool find(std::int64_t replica, std::int64_t id, Step& step) const;

    // Whether everything read so far of steps from `oldest` on was theirs: none of their rows has gone since.
    bool whole_since(std::int64_t replica, std::int64_t oldest) const {
        std::atomic_thread_fence(std::memory_order_acquire);
        return section(replica).head->load(std::memory_order_relaxed) <= oldest + log_;
    }

    // The row to fill for the next publish. Takes a writer's place at the first call of a process.
    char* blank(std::int64_t replica);
    // Puts the row just filled into the log and returns its id. `ends`: the step ends its environment's
    // episode.
    std::int64_t publish(std::int64_t replica, std::int64_t env, bool ends);
    // The environment's next step follows none.
    void end_episode(std::int64_t replica, std::int64_t env);

    // Makes everything published so far durable: it outlives a power cut until more is published.
    void flush();
    // Lets go of the file; nothing may be called after.
    void close();

    // Whether rows may have to be read from disk first; and asks for some that are about to be read.
    bool exceeds_memory() const { return exceeds_memory_; }
    static void ask_for(const char* row, std::int64_t bytes);

    char* rows(std::int64_t replica) const { return section(replica).rows; }
    std::int64_t replica_bytes() const { return section_bytes_; }  // from one replica's rows to the next's
    std::int64_t zero_row() const { return log_ + writers_; }      // the number of a row that is always zero
    std::int64_t streams() const { return writers_ * num_envs_; }
    std::int64_t headroom() const { return log_ - capacity_; }
    bool was_unflushed() const { return was_unflushed_; }      // the machine stopped with steps not flushed
    const std::string& identity() const { return identity_; }  // of this file: one made again has another

  private:
    using Word = std::atomic<std::uint64_t>;
    using Number = std::atomic<std::int64_t>;

    struct Header;  // of the file
    struct Mark;    // of a row
    struct Record;  // of a writer's place

    struct Section {  // of a replica
        Number* head;
        Record* records;
        Word* log;
        Mark* marks;
        char* rows;
    };

    const Section& section(std::int64_t replica) const {
        return sections_[static_cast<std::size_t>(replica)];
    }
    void measure(std::int64_t replicas, std::int64_t declaration_bytes);
    void make(const MappedConfig& config);
    void open_existing(const MappedConfig& config, std::int64_t size);
    void map();
    void place_sections();
    void take_place();
    void open_again();
    static std::uint64_t forks();  // this process is how many forks away from the first
    [[noreturn]] void damaged(const char* why) const;
    bool swap_in(const Section& section, std::int64_t id, Word& place, std::uint64_t word,
                 std::int64_t blank);
    bool sound(const Section& section, const Record& record) const;
    std::int64_t settle(const Section& section, Record& record) const;
    void mark_unflushed();
    void sync(std::int64_t bytes) const;
    bool consistent() const;
    bool lock(std::int64_t byte) const;
    void unlock(std::int64_t byte) const;

    std::string path_, identity_;
    int file_ = -1;
    char* base_ = nullptr;
    Header* header_ = nullptr;
    std::int64_t capacity_, log_, writers_, num_envs_, stride_;
    std::int64_t memory_;
    std::int64_t most_ = 0;  // steps that laps can number
    bool exceeds_memory_ = false, was_unflushed_ = false;
    std::int64_t first_section_ = 0, section_bytes_ = 0, file_bytes_ = 0;
    std::vector<Section> sections_;

    std::int64_t place_ = -1;  // this writer's, −1 before it has one
    std::uint64_t born_;       // forks before the file was opened: a forked child needs it for itself
    std::vector<std::int64_t> blanks_;  // by replica: the row this writer owns
    std::vector<std::uint32_t> steps_;  // by replica and environment: the next step's place in its episode
};

}  // namespace replaylab
