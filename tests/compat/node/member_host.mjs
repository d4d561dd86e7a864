// A process with group members in it. Lines of JSON on standard input say which member does what; lines of JSON on
// standard output answer, and tell what each member owns and reads.
import { createInterface } from "node:readline";

const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");

// What a member of any client says of itself.
class Teller {
  constructor(number) {
    this.number = number;
    this.last = "[]";
  }

  // Every partition that the member now has, as [topic, partition].
  owned(places) {
    const message = JSON.stringify(places.sort());
    if (message !== this.last) {
      this.last = message;
      say({ member: this.number, owned: places });
    }
  }

  // Records, as [topic, partition, offset, value].
  received(records) {
    if (records.length) say({ member: this.number, received: records });
  }

  failed(error) {
    say({ member: this.number, failed: String(error?.stack ?? error) });
  }
}

// Host members of `Member` until standard input ends. Each call is one of its methods, which gets what was asked.
export async function host(Member) {
  const members = new Map();
  for await (const line of createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    if (asked.call === "join") members.set(asked.member, new Member(asked, new Teller(asked.member)));
    Promise.resolve(members.get(asked.member)[asked.call](asked)).then(
      (result) => say({ id: asked.id, result: result ?? null }),
      (error) => say({ id: asked.id, error: String(error?.stack ?? error) }),
    );
  }
  process.exit(0);
}
